// Runs forward and backward of one tower on random data. Prints images/s, and the milliseconds and
// GFLOP/s of each op. Compare the GFLOP/s with the multiply-add peak of the cores, which is also
// measured. GFLOP/s always count the operations of direct sums. So Winograd convolutions, which
// need 2.25 times fewer multiplications, may exceed the peak.
//
//   tower_bench configs/models/cifar10_tutorial.txtpb --input 24x24x3 --batch 64 --threads 1
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/base/program_options.h"
#include "common/base/random.h"
#include "common/config/build_graph.h"
#include "common/config/text_format.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "worker/backend/backend_wrapper.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/nn/tower.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The shortest measured times of one op, in seconds.
struct OpTimes {
  std::string name;
  double forward_flops = 0, backward_flops = 0;  // per batch
  double forward = std::numeric_limits<double>::infinity();
  double backward = std::numeric_limits<double>::infinity();
};

template <typename Call>
auto Timed(double& shortest, const Call& call) {
  struct Stop {
    ~Stop() { shortest = std::min(shortest, SecondsSince(start)); }
    double& shortest;
    Clock::time_point start = Clock::now();
  } stop{shortest};
  return call();
}

class TimedOp : public Op {
 public:
  TimedOp(std::unique_ptr<Op> op, OpTimes& times) : op_(std::move(op)), times_(times) {}
  size_t state_bytes() const override { return op_->state_bytes(); }
  size_t scratch_bytes() const override { return op_->scratch_bytes(); }
  void Forward(const ForwardArgs& args) override {
    Timed(times_.forward, [&] { op_->Forward(args); });
  }
  void Backward(const BackwardArgs& args) override {
    Timed(times_.backward, [&] { op_->Backward(args); });
  }

 private:
  std::unique_ptr<Op> op_;
  OpTimes& times_;
};

class TimedLoss : public LossOp {
 public:
  TimedLoss(std::unique_ptr<LossOp> op, OpTimes& times) : op_(std::move(op)), times_(times) {}
  size_t state_bytes() const override { return op_->state_bytes(); }
  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    Timed(times_.forward, [&] { op_->Forward(args, sums, predictions); });
  }
  void Backward(const LossArgs& args, float scale, void* gradient) override {
    Timed(times_.backward, [&] { op_->Backward(args, scale, gradient); });
  }

 private:
  std::unique_ptr<LossOp> op_;
  OpTimes& times_;
};

// Measures each op of another backend that runs on the host. Adding gradients is not part of any
// op; its time is the difference between the step and the sum of the ops.
class TimedBackend : public BackendWrapper {
 public:
  using BackendWrapper::BackendWrapper;
  const std::vector<std::unique_ptr<OpTimes>>& times() const { return times_; }

  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override {
    return std::make_unique<TimedOp>(BackendWrapper::MakeOp(layer, options), Add(layer, options));
  }
  std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) override {
    return std::make_unique<TimedLoss>(BackendWrapper::MakeLoss(layer, options),
                                       Add(layer, options));
  }

 private:
  static std::string Name(const Layer& layer, const OpOptions& options) {
    const std::string activation = muster::Name(options.activation);
    return layer.name + (options.fuse_add ? " + add" : "") +
           (activation.empty() ? "" : " + " + activation);
  }
  OpTimes& Add(const Layer& layer, const OpOptions& options) {
    const double flops = layer.weights < 0 ? 0 : layer.forward_flops * options.batch;
    times_.push_back(std::make_unique<OpTimes>(
        OpTimes{.name = Name(layer, options),
                .forward_flops = flops,
                .backward_flops = flops * (options.input_gradient ? 2 : 1)}));
    return *times_.back();
  }

  std::vector<std::unique_ptr<OpTimes>> times_;
};

// Twelve independent multiply-adds of registers named `r`, so that each may take six cycles.
#define MUSTER_ROUND(op, r)                                                                   \
  op " %%" r "12, %%" r "13, %%" r "0\n" op " %%" r "12, %%" r "13, %%" r "1\n" op " %%" r    \
     "12, %%" r "13, %%" r "2\n" op " %%" r "12, %%" r "13, %%" r "3\n" op " %%" r "12, %%" r \
     "13, %%" r "4\n" op " %%" r "12, %%" r "13, %%" r "5\n" op " %%" r "12, %%" r "13, %%" r \
     "6\n" op " %%" r "12, %%" r "13, %%" r "7\n" op " %%" r "12, %%" r "13, %%" r "8\n" op   \
     " %%" r "12, %%" r "13, %%" r "9\n" op " %%" r "12, %%" r "13, %%" r "10\n" op " %%" r   \
     "12, %%" r "13, %%" r "11\n"
#define MUSTER_REGISTERS                                                                   \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

// Returns the GFLOP/s of one thread that only multiplies and adds, in the widest vectors.
double PeakGflops(bool bf16) {
  constexpr int kRounds = 2'000'000;
  const bool avx512 = __builtin_cpu_supports("avx512f");
  const double lanes = bf16 ? 32 : avx512 ? 16 : 8;
  double shortest = std::numeric_limits<double>::infinity();
  asm volatile("vzeroall" : : : MUSTER_REGISTERS);  // infinities could be slow
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto start = Clock::now();
    for (int i = 0; i < kRounds; ++i) {
      if (bf16) {
        asm volatile(MUSTER_ROUND("vdpbf16ps", "zmm") : : : MUSTER_REGISTERS);
      } else if (avx512) {
        asm volatile(MUSTER_ROUND("vfmadd231ps", "zmm") : : : MUSTER_REGISTERS);
      } else {
        asm volatile(MUSTER_ROUND("vfmadd231ps", "ymm") : : : MUSTER_REGISTERS);
      }
    }
    shortest = std::min(shortest, SecondsSince(start));
  }
  return 2 * lanes * 12 * kRounds / shortest / 1e9;
}

void FillRandom(std::span<float> values, float scale, uint32_t place) {
  const RandomStream stream(1, RandomPurpose::kSynthetic, place, 0, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = stream.Block(static_cast<uint32_t>(i / 4))[i % 4];
    values[i] = scale * (2 * ToUniform(bits) - 1);
  }
}

struct Options {
  std::string model, input = "24x24x3";
  int64_t batch = 64;
  int threads = 1;
  double seconds = 2;
  bool direct = false, bf16 = false;
};

void PrintOps(const TimedBackend& backend) {
  const auto gflops = [](double flops, double seconds) {
    return flops > 0 && std::isfinite(seconds) ? fmt::format("{:6.1f}", flops / seconds / 1e9)
                                               : std::string(6, ' ');
  };
  const auto ms = [](double seconds) { return std::isfinite(seconds) ? seconds * 1e3 : 0; };
  fmt::print("{:24} {:>9} {:>9} {:>9} {:>9}\n", "op", "fwd ms", "GFLOP/s", "bwd ms", "GFLOP/s");
  double forward = 0, backward = 0;
  for (const auto& op : backend.times()) {
    fmt::print("{:24} {:9.3f}    {} {:9.3f}    {}\n", op->name, ms(op->forward),
               gflops(op->forward_flops, op->forward), ms(op->backward),
               gflops(op->backward_flops, op->backward));
    forward += ms(op->forward);
    backward += ms(op->backward);
  }
  fmt::print("{:24} {:9.3f} {:9} {:9.3f}\n", "sum", forward, "", backward);
  fmt::print("GFLOP/s count direct sums; Winograd convolutions need 2.25 times fewer operations\n");
}

void Run(const Options& options) {
  config::Model model;
  ConfigErrors errors(options.model);
  ParseTextFile(options.model, "model", model, errors);
  errors.ThrowIfAny();
  Shape input;
  if (std::sscanf(options.input.c_str(), "%ldx%ldx%ld", &input.height, &input.width,
                  &input.channels) != 3) {
    throw Error(ExitCode::kUsage, "--input: expected 24x24x3, got {}", options.input);
  }
  const Graph graph = BuildGraph(model, input);
  TimedBackend backend(
      MakeCpuBackend(options.threads, {.winograd = !options.direct, .bf16 = options.bf16}));
  Tower tower(graph, backend, 1);
  tower.Prepare(options.batch, Mode::kTraining);

  Arena weights(graph.arena_floats()), gradients(graph.arena_floats());
  for (const Variable& v : graph.variables()) {
    FillRandom(weights.floats().subspan(v.offset, v.count), std::sqrt(6.0f / v.fan_in), v.offset);
  }
  Arena images(options.batch * input.elements());
  FillRandom(images.floats(), 2, 0);
  std::vector<int32_t> labels(options.batch);
  std::vector<int64_t> ids(options.batch);
  for (int64_t i = 0; i < options.batch; ++i) {
    ids[i] = i;
    labels[i] = static_cast<int32_t>(i % graph.classes());
  }
  const TowerInput batch = {.count = options.batch,
                            .images = images.floats().data(),
                            .labels = labels.data(),
                            .sample_ids = ids.data()};

  // Each step has a new version of the weights, as in training.
  std::vector<double> steps;
  const auto start = Clock::now();
  for (int64_t step = 0; step < 5 || SecondsSince(start) < options.seconds; ++step) {
    double seconds = std::numeric_limits<double>::infinity();
    const LossSums sums = Timed(seconds, [&] {
      LossSums sums;
      tower.Forward(batch, Mode::kTraining, weights.floats(), step, nullptr, sums);
      tower.Backward(1.0f / options.batch, weights.floats(), gradients.floats(), nullptr);
      return sums;
    });
    if (!std::isfinite(sums.loss)) throw Error(ExitCode::kNonfinite, "the loss is {}", sums.loss);
    steps.push_back(seconds);
  }
  std::sort(steps.begin(), steps.end());
  PrintOps(backend);
  double flops = 0;
  for (const auto& op : backend.times()) flops += op->forward_flops + op->backward_flops;
  const double median = steps[steps.size() / 2];
  fmt::print("step: median {:.2f} ms, shortest {:.2f} ms, of {} steps\n", median * 1e3,
             steps[0] * 1e3, steps.size());
  fmt::print("{:.0f} images/s (best {:.0f}); {:.1f} GFLOP/s of a peak of {} x {:.1f}\n",
             options.batch / median, options.batch / steps[0], flops / median / 1e9,
             options.threads, PeakGflops(options.bf16));
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  muster::Options options;
  muster::ProgramOptions program(
      "Measures one tower: forward and backward of a network on random data.");
  program.Add("model", options.model, "Model file (configs/models/*.txtpb)").Required();
  program.Add("--input", options.input, "height x width x channels").ShowDefault();
  program.Add("--batch", options.batch, "number of samples").ShowDefault();
  program.Add("--threads", options.threads).ShowDefault();
  program.Add("--seconds", options.seconds, "duration").ShowDefault();
  program.AddFlag("--direct", options.direct, "use worker.convolution DIRECT");
  program.AddFlag("--bf16", options.bf16, "use worker.precision BF16");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (options.bf16 && !muster::CpuHasBf16()) {
    fmt::print(stderr, "tower_bench: this processor has no AVX512-BF16\n");
    return 1;
  }
  try {
    muster::Run(options);
  } catch (const muster::Error& error) {
    fmt::print(stderr, "tower_bench: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
