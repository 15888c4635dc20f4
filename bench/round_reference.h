// What rounds of push, average and update must give: gradients in closed form, and the weights that
// follow from them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/memory.h"
#include "proto/config.pb.h"
#include "ps/update/optimizer.h"

namespace muster::bench {

constexpr size_t kPattern = 61;  // gradients, and so weights, repeat after this many floats

// The gradient of element i in round `step` by `rank`: sums of a few of them are exact. The same in
// every round, unless it `changes`.
float GradientAt(size_t i, uint32_t rank, int64_t step, bool changes);

// The weights after each round, from zero, with each worker one slice of `config`'s job: tree sums
// by their definition, and the pass in its plainest version (SCALAR), whose bits every other one's
// are.
class RoundReference {
 public:
  RoundReference(const config::Config& config, bool gradients_change);

  // The kPattern first weights after `steps` rounds, as workers see them: rounded as on the wire.
  // `steps` must not decrease from call to call.
  std::vector<float> WeightsAfter(int64_t steps);

  // Compares the pass itself, after a few rounds, with the optimizer's formula in double precision.
  // Throws muster::Error.
  static void CheckFormula(const config::Config& config, bool gradients_change);

 private:
  float SumAt(size_t i, int64_t step) const;
  void Round();

  const config::Config config_;
  const bool gradients_change_;
  const Optimizer optimizer_;
  int64_t rounds_ = 0;
  Arena sums_, weight_buffers_[2];
  std::array<std::array<Arena, 2>, 2> state_;  // of each weight buffer
};

}  // namespace muster::bench
