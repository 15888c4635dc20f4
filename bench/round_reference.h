// Computes the expected results of rounds of push, average and update: gradients in closed form,
// and the resulting weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/memory.h"
#include "proto/config.pb.h"
#include "ps/update/optimizer.h"

namespace muster::bench {

constexpr size_t kPattern = 61;  // gradients, and therefore weights, repeat after this many floats

// Returns the gradient of element i that `rank` pushes in round `step`. Sums of a few gradients are
// exact. Gradients are equal in all rounds unless `changes` is set.
float GradientAt(size_t i, uint32_t rank, int64_t step, bool changes);

// Computes the weights after each round, starting from zero, for a job in which each worker has one
// slice. Gradients are added in the order of the slice tree. The update uses the SCALAR kernels,
// whose bits all instruction sets must match.
class RoundReference {
 public:
  RoundReference(const config::Config& config, bool gradients_change);

  // Returns the first kPattern weights after `steps` rounds as workers see them, rounded to the
  // wire type. `steps` must not decrease between calls.
  std::vector<float> WeightsAfter(int64_t steps);

  // Compares the update kernels after a few rounds with the optimizer's formula in double
  // precision. Throws muster::Error.
  static void CheckFormula(const config::Config& config, bool gradients_change);

 private:
  float SumAt(size_t i, int64_t step) const;
  void Round();

  const config::Config config_;
  const bool gradients_change_;
  const Optimizer optimizer_;
  int64_t rounds_ = 0;
  Arena sums_, weight_buffers_[2];
  std::array<std::array<Arena, 2>, 2> state_;  // by weight buffer
};

}  // namespace muster::bench
