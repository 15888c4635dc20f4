#include "bench/fused_update_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/base/error.h"
#include "common/plan/slices.h"
#include "ps/update/choose_kernels.h"
#include "ps/update/update.h"
#include "tests/ps/optimizer_reference.h"

namespace muster::bench {
namespace {

constexpr size_t kPattern = 61;  // values repeat after this many floats
constexpr double kRate = 0.01;

float WeightAt(size_t i) { return static_cast<float>(i % kPattern) / 16 - 2; }
// Sums of a few of these values are exact.
float GradientAt(size_t i, int part) {
  return (static_cast<float>(i * 7 % kPattern) - 30) / 32 * static_cast<float>(part + 1);
}

TreeSum TreeOf(int parts) {
  std::vector<TreeNode> leaves;
  leaves.reserve(static_cast<size_t>(parts));
  for (int part = 0; part < parts; ++part) leaves.push_back({0, static_cast<uint32_t>(part)});
  return TreeSum(leaves, parts);
}

// Returns chunks similar to the server's for a model of this size, but at least one per thread.
std::vector<Chunk> Cut(size_t floats, int threads) {
  const size_t target = std::clamp<size_t>(floats / 24, 1 << 18, 1 << 20);
  const size_t count =
      std::max<size_t>(static_cast<size_t>(threads), (floats + target - 1) / target);
  std::vector<Chunk> chunks;
  for (size_t c = 0; c < count; ++c) {
    const size_t lines = floats / 16;
    const Chunk chunk{lines * c / count * 16, lines * (c + 1) / count * 16, 0, 0};
    if (chunk.floats() > 0) chunks.push_back(chunk);
  }
  return chunks;
}

}  // namespace

FusedUpdateRun::FusedUpdateRun(Team& team, const FusedUpdateOptions& options)
    : team_(team),
      options_(options),
      tree_(TreeOf(options.parts)),
      segments_{
          {.begin = 0, .end = options.floats, .weight_decay = options.optimizer.weight_decay()}},
      chunks_(Cut(options.floats, team.threads())) {
  const size_t floats = options.floats;
  const auto shared = [](const char* name, size_t count) {
    return SharedMemory::Create(name, count * sizeof(float), SharedMemory::Access::kReadWrite);
  };
  weight_memory_ = shared("bench-weights", 2 * floats);
  for (size_t buffer = 0; buffer < 2; ++buffer) {
    weight_buffers_[buffer] = weight_memory_.writable_floats().subspan(buffer * floats, floats);
  }
  const size_t states = Optimizer(options.optimizer, *AvailableKernels().back()).state_arenas();
  for (size_t i = 0; i < states; ++i) {
    for (size_t buffer = 0; buffer < (options.keep_previous ? 2 : 1); ++buffer) {
      state_memory_.emplace_back(floats);
      state_[buffer][i] = state_memory_.back().floats().first(floats);
    }
    if (!options.keep_previous) state_[1][i] = state_[0][i];
  }
  for (int part = 0; part < options.parts; ++part) {
    gradient_memory_.push_back(shared("bench-gradients", floats));
    gradient_buffers_.push_back(gradient_memory_.back().writable_floats().first(floats));
    for (size_t i = 0; i < floats; ++i) gradient_buffers_.back()[i] = GradientAt(i, part);
  }
}

void FusedUpdateRun::Reset() {
  updates_ = 0;
  for (size_t i = 0; i < options_.floats; ++i) weight_buffers_[0][i] = WeightAt(i);
  for (const std::span<float> state : state_[0]) std::ranges::fill(state, 0.0f);
}

void FusedUpdateRun::Update(const UpdateRule& rule, int64_t number, const Chunk& chunk) {
  ChunkUpdate update{.chunk = chunk,
                     .gradient = {&tree_, {}},
                     .averaged = {},
                     .rule = rule,
                     .segments = segments_,
                     .weights = weight_buffers_[number % 2],
                     .next_weights = weight_buffers_[(number + 1) % 2],
                     .state = {state_[number % 2][0], state_[number % 2][1]},
                     .next_state = state_[(number + 1) % 2],
                     .average = {},
                     .stream = options_.stream};
  for (const std::span<float> gradient_buffer : gradient_buffers_) {
    update.gradient.parts.push_back(gradient_buffer.data() + chunk.begin);
  }
  MUSTER_CHECK(ApplyUpdate(update));
}

double FusedUpdateRun::Seconds(const UpdateKernelTable& kernels, int repeats) {
  const Optimizer optimizer(options_.optimizer, kernels);
  const double seconds = team_.TimeEach(chunks_.size(), repeats, [&](int repeat, size_t c) {
    const int64_t number = updates_ + repeat;
    Update(optimizer.RuleFor(number + 1, kRate), number, chunks_[c]);
  });
  updates_ += repeats;
  return seconds;
}

std::string FusedUpdateRun::Verify(const UpdateKernelTable& kernels) {
  Reset();
  constexpr int kUpdates = 3;
  Seconds(kernels);
  Seconds(kernels, kUpdates - 1);
  const std::span<const float> weights = weight_buffers_[kUpdates % 2];
  for (size_t i = 0; i < std::min(kPattern, weights.size()); ++i) {
    double gradient = 0;
    for (int part = 0; part < options_.parts; ++part) gradient += GradientAt(i, part);
    testing::OptimizerReference reference{options_.optimizer, WeightAt(i)};
    for (int t = 1; t <= kUpdates; ++t) reference.Step(t, kRate, gradient);
    if (!(std::abs(weights[i] - reference.w) <= 1e-5 * (1 + std::abs(reference.w)))) {
      return fmt::format("weight {} is {}, expected {}", i, weights[i], reference.w);
    }
  }
  for (size_t i = kPattern; i < weights.size(); ++i) {
    if (std::bit_cast<uint32_t>(weights[i]) != std::bit_cast<uint32_t>(weights[i % kPattern])) {
      return fmt::format("weight {} is {}, weight {} is {}: expected the same", i, weights[i],
                         i % kPattern, weights[i % kPattern]);
    }
  }
  return "";
}

}  // namespace muster::bench
