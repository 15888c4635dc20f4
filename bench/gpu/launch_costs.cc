#include "bench/gpu/launch_costs.h"

#include <cuda_bf16.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "bench/gpu/bench_device.h"
#include "worker/backend/cuda/await.h"
#include "worker/backend/cuda/graph.h"
#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

constexpr int kRepeats = 9;

using Clock = std::chrono::steady_clock;

class Costs {
 public:
  explicit Costs(int calls) : calls_(calls) { fmt::print("| call | µs |\n|---|---|\n"); }

  // Prints the median of several rounds, in µs per call. Waits for the GPU after each round.
  void Row(const char* name, const std::function<void()>& call) {
    call();
    device_.Wait();
    std::vector<double> micros;
    for (int round = 0; round < kRepeats; ++round) {
      const auto begin = Clock::now();
      for (int i = 0; i < calls_; ++i) call();
      const std::chrono::duration<double, std::micro> spent = Clock::now() - begin;
      device_.Wait();
      micros.push_back(spent.count() / calls_);
    }
    std::sort(micros.begin(), micros.end());
    fmt::print("| {} | {:.2f} |\n", name, micros[micros.size() / 2]);
  }

  void Run() {
    auto* const one = device_.Make<float>(1, [](int64_t) { return 1.0f; });
    const LockedMemory locked = AllocateLocked(4096);
    auto* const small = device_.Allocate<std::byte>(4096);
    const EventHandle event = MakeEventHandle();
    const auto launch = [&] { Elementwise(device_.target(), ReluSpec(), one, one, 1); };
    const auto record = [&] { Check(cudaEventRecord(event.get(), device_.stream()), "record"); };
    Row("start a kernel", launch);
    const double seconds = device_.MedianSeconds(
        [&] {
          for (int i = 0; i < calls_; ++i) launch();
        },
        kRepeats);
    fmt::print("| a short kernel in a sequence, on the GPU | {:.2f} |\n", seconds * 1e6 / calls_);
    const auto twenty = [&] {
      for (int i = 0; i < 20; ++i) launch();
    };
    const StartableGraph graph = RecordGraph(device_.stream(), twenty);
    const auto start_graph = [&] {
      Check(cudaGraphLaunch(graph.get(), device_.stream()), "start a graph");
    };
    Row("start 20 kernels", twenty);
    Row("start a graph of 20 kernels", start_graph);
    fmt::print("| a graph of 20 short kernels, on the GPU | {:.2f} |\n",
               device_.MedianSeconds(start_graph, kRepeats) * 1e6);
    Row("record an event", record);
    Row("query an event that has happened", [&] { (void)HasHappened(event.get()); });
    Row("make a stream wait for an event",
        [&] { Check(cudaStreamWaitEvent(device_.stream(), event.get(), 0), "wait"); });
    Row("queue a copy of 4 KiB to the GPU", [&] {
      Check(cudaMemcpyAsync(small, locked.get(), 4096, cudaMemcpyHostToDevice, device_.stream()),
            "copy");
    });
    Row("start a kernel and wait for the stream", [&] {
      launch();
      device_.Wait();
    });
    Row("start a kernel and wait like a worker", [&] {
      launch();
      record();
      (void)AwaitEvent(event.get(), 10);
    });
  }

 private:
  const int calls_;
  BenchDevice device_;
};

}  // namespace

void PrintLaunchCosts(int calls) { Costs(calls).Run(); }

}  // namespace muster::cuda
