// What looking at a run costs the server's loop and the update: norms and histograms of a step, a
// line of TensorBoard's, a status. The bits of the weights must be the same with and without.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/program_options.h"
#include "common/config/build_graph.h"
#include "common/graph/variable_layout.h"
#include "ps/choose_kernels.h"
#include "ps/observation_sums.h"
#include "ps/optimizer.h"
#include "ps/segments.h"
#include "ps/tensorboard/board.h"
#include "ps/update.h"
#include "ps/watch/status_file.h"

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kVariables = 20;
constexpr size_t kChunkFloats = 1 << 18;  // 1 MiB
constexpr int kInterval = 50;             // run.log_every_steps

VariableLayout MakeLayout(size_t floats) {
  std::vector<Variable> variables;
  const size_t each = floats / kVariables / 16 * 16;
  for (size_t i = 0; i < kVariables; ++i) {
    Variable variable{};
    variable.name = fmt::format("layer{}/weights", i);
    variable.layer = static_cast<int>(i);
    variable.shape = {static_cast<int64_t>(each)};
    variable.offset = i * each;
    variable.count = each;
    variables.push_back(std::move(variable));
  }
  return {std::move(variables), {}};
}

// The fastest of some runs, in seconds.
double Fastest(int runs, const std::function<void()>& work) {
  double fastest = 1e9;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    fastest = std::min(fastest, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return fastest;
}

// One update of everything, by one thread.
class Update {
 public:
  explicit Update(size_t floats)
      : layout_(MakeLayout(floats)),
        optimizer_(Settings(), *AvailableKernels().back()),
        segments_(CutSegments(layout_.variables(), layout_.arena_floats(), Settings())) {
    const size_t all = layout_.arena_floats();
    for (std::vector<float>* one : {&weights_, &next_, &gradient_, &state_}) one->resize(all);
    for (size_t i = 0; i < all; ++i) {
      const auto word = static_cast<uint32_t>(i * 2654435761U);
      weights_[i] = static_cast<float>(word >> 8) * 0x1p-25F - 0.25F;
      gradient_[i] = static_cast<float>(word & 0xffffff) * 0x1p-30F - 0x1p-7F;
    }
  }

  void Run(Observe observe) {
    const TreeSum tree({{0, 0}}, 1);
    std::vector<ChunkObserver> observers;
    std::ranges::fill(state_, 0.0F);
    for (size_t begin = 0; begin < weights_.size(); begin += kChunkFloats) {
      const size_t end = std::min(weights_.size(), begin + kChunkFloats);
      ChunkGradient parts{&tree, wire::FP32, {gradient_.data() + begin}};
      ChunkUpdate update{.chunk = {begin, end, 0, 0},
                         .gradient = std::move(parts),
                         .averaged = {},
                         .rule = optimizer_.RuleFor(1, 0.1),
                         .segments = segments_,
                         .weights = weights_,
                         .next_weights = next_,
                         .state = {state_},
                         .next_state = {state_}};
      if (observe != Observe::kNothing) {
        observers.emplace_back(layout_, observe == Observe::kHistograms);
        update.observer = &observers.back();
      }
      MUSTER_CHECK(ApplyUpdate(update));
    }
    if (observe != Observe::kNothing) seen_ = SumUp(observers, 1);
  }

  const std::vector<float>& result() const { return next_; }
  const Observation& seen() const { return seen_; }

 private:
  static config::Optimizer Settings() {
    config::Optimizer settings;
    settings.set_type(config::Optimizer::MOMENTUM);
    return settings;
  }
  VariableLayout layout_;
  Optimizer optimizer_;
  std::vector<Segment> segments_;
  std::vector<float> weights_, next_, gradient_, state_;
  Observation seen_;
};

void BenchUpdate(size_t floats, int runs) {
  Update update(floats);
  update.Run(Observe::kNothing);
  const std::vector<float> expected = update.result();
  const auto time = [&](Observe observe) {
    const double seconds = Fastest(runs, [&] { update.Run(observe); });
    if (std::memcmp(expected.data(), update.result().data(), expected.size() * sizeof(float)) !=
        0) {
      throw Error(ExitCode::kFailure, "other weights: expected the same bits, observed or not");
    }
    return 1e3 * seconds;
  };
  const double plain = time(Observe::kNothing), norms = time(Observe::kNorms);
  const double histograms = time(Observe::kHistograms);
  MUSTER_CHECK(update.seen().variables.size() == kVariables && update.seen().weight_norm > 0);
  fmt::print(
      "{:>9} weights  update {:8.3f} ms  with norms {:8.3f} ms  with histograms {:8.3f} ms\n",
      expected.size(), plain, norms, histograms);
  fmt::print("{:19}norms every {} steps: {:+.2f} % of the update\n", "", kInterval,
             100 * (norms - plain) / plain / kInterval);
}

void BenchStatus(size_t ranks, int runs) {
  RecentTimes recent(ranks);
  wire::StepTimes times;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (int step = 0; step < 300; ++step) {
      times.set_compute_ms(100 + (step * 7919 + static_cast<int>(rank)) % 31);
      recent.Add(rank, times);
    }
  }
  LoadMeter load;
  size_t bytes = 0;
  const double seconds = Fastest(runs, [&] {
    RunStatus status{.state = "training"};
    for (uint32_t rank = 0; rank < ranks; ++rank)
      status.ranks.push_back({.parts = recent.Of(rank)});
    bytes = StatusText(status, load.Measure(), ThisProcess()).size();
  });
  MUSTER_CHECK(bytes > ranks * 100);
  fmt::print("{:>9} ranks    status {:8.1f} us a second: {:.4f} % of the loop\n", ranks,
             1e6 * seconds, 100 * seconds);
}

// What the loop does of a line; the file is written by another thread.
void BenchLine(uint32_t ranks, int runs) {
  std::string dir = std::filesystem::temp_directory_path() / "muster_bench_XXXXXX";
  MUSTER_CHECK(::mkdtemp(dir.data()) != nullptr);
  config::Config config;
  config.mutable_run()->set_dir(dir);
  config.mutable_cluster()->set_workers(ranks);
  config::Layer& dense = *config.mutable_model()->add_layer();
  dense.set_name("dense");
  dense.mutable_dense()->set_units(10);
  config::Layer& loss = *config.mutable_model()->add_layer();
  loss.set_name("loss");
  loss.mutable_softmax_cross_entropy();
  const Graph graph = BuildGraph(config.model(), {1, 1, 10});
  double seconds = 0;
  {
    BackgroundThread thread;
    Board board(config, graph, thread);
    board.Begin(0);
    wire::StepTimes times;
    events::Log line;
    seconds = Fastest(runs, [&] {
      for (uint32_t rank = 0; rank < ranks; ++rank) board.AddTimes(rank, times);
      board.Observed(50, {.gradient_norm = 1, .weight_norm = 2});
      board.Log(line);
    });
    MUSTER_CHECK(!board.TakeTrouble());
  }
  std::filesystem::remove_all(dir);
  fmt::print("{:>9} ranks    line of TensorBoard's {:8.1f} us every {} steps\n", ranks,
             1e6 * seconds, kInterval);
}

int Main(int argc, char** argv) {
  int64_t runs = 20;
  ProgramOptions program{"What norms, histograms and the status of a run cost its server."};
  program.Add("--runs", runs, "The fastest of so many is shown").InRange(1, 10000).ShowDefault();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  for (const size_t floats : {size_t{100'000}, size_t{1'000'000}, size_t{25'000'000}}) {
    BenchUpdate(floats, static_cast<int>(runs));
  }
  for (const size_t ranks : {size_t{2}, size_t{8}, size_t{64}}) {
    BenchStatus(ranks, static_cast<int>(runs));
    BenchLine(static_cast<uint32_t>(ranks), static_cast<int>(runs));
  }
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
