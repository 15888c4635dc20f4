#include "bench/round_reference.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/link/protocol.h"
#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "ps/update/choose_kernels.h"
#include "ps/update/segments.h"
#include "ps/update/update.h"
#include "tests/ps/optimizer_reference.h"
#include "tests/ps/tree_sum_reference.h"

namespace muster::bench {
namespace {

constexpr size_t kFloats = 64;  // chunk size, a multiple of the cache line

float RateOf(const config::Config& config) { return config.learning_rate().base(); }

}  // namespace

float GradientAt(size_t i, uint32_t rank, int64_t step, bool changes) {
  const auto turn = changes ? static_cast<size_t>(step) : 0;
  return static_cast<float>(static_cast<int>((i + 7 * turn) % kPattern) - 30) *
         static_cast<float>(rank + 1);
}

RoundReference::RoundReference(const config::Config& config, bool gradients_change)
    : config_(config),
      gradients_change_(gradients_change),
      optimizer_(config_.optimizer(), ChooseKernels(config::Server::SCALAR)),
      sums_(kFloats),
      weight_buffers_{Arena(kFloats), Arena(kFloats)},
      state_{{{Arena(kFloats), Arena(kFloats)}, {Arena(kFloats), Arena(kFloats)}}} {}

float RoundReference::SumAt(size_t i, int64_t step) const {
  const int64_t slices = config_.cluster().workers();
  bool any;
  return testing::TreeSumOf(
      [&](int64_t slice) {
        return GradientAt(i, static_cast<uint32_t>(slice), step, gradients_change_);
      },
      Root(slices), slices, [](int64_t) { return false; }, &any, WireTypeOf(config_.cluster()));
}

void RoundReference::Round() {
  for (size_t i = 0; i < kFloats; ++i) sums_.floats()[i] = SumAt(i, rounds_);
  const std::vector<Segment> segments{
      {.begin = 0, .end = kFloats, .weight_decay = config_.optimizer().weight_decay()}};
  const auto from = static_cast<size_t>(rounds_ % 2);
  ChunkUpdate update{.chunk = {0, kFloats, 0, 0},
                     .gradient = {},
                     .averaged = sums_.floats(),
                     .rule = optimizer_.RuleFor(rounds_ + 1, RateOf(config_)),
                     .segments = segments,
                     .weights = weight_buffers_[from].floats(),
                     .next_weights = weight_buffers_[1 - from].floats(),
                     .state = {state_[from][0].floats(), state_[from][1].floats()},
                     .next_state = {state_[1 - from][0].floats(), state_[1 - from][1].floats()},
                     .average = {}};
  if (!ApplyUpdate(update)) {
    throw Error(ExitCode::kNonfinite, "the reference's weights are not finite after round {}",
                rounds_ + 1);
  }
  ++rounds_;
}

std::vector<float> RoundReference::WeightsAfter(int64_t steps) {
  MUSTER_CHECK(rounds_ <= steps);
  while (rounds_ < steps) Round();
  const std::span<const float> weights = weight_buffers_[rounds_ % 2].floats();
  std::vector<float> seen(weights.begin(), weights.begin() + kPattern);
  RoundToWire(WireTypeOf(config_.cluster()), seen);
  return seen;
}

void RoundReference::CheckFormula(const config::Config& config, bool gradients_change) {
  constexpr int64_t kRounds = 5;
  RoundReference reference(config, gradients_change);
  (void)reference.WeightsAfter(kRounds);
  for (size_t i = 0; i < kPattern; ++i) {
    testing::OptimizerReference formula{config.optimizer(), 0};
    for (int64_t step = 0; step < kRounds; ++step) {
      formula.Step(step + 1, RateOf(config), reference.SumAt(i, step),
                   config.optimizer().weight_decay());
    }
    const double got = reference.weight_buffers_[kRounds % 2].floats()[i];
    if (!(std::abs(got - formula.w) <= 1e-5 * (1 + std::abs(formula.w)))) {
      throw Error(ExitCode::kFailure, "{}: weight {} is {}, but its formula gives {}",
                  config::Optimizer::Type_Name(config.optimizer().type()), i, got, formula.w);
    }
  }
}

}  // namespace muster::bench
