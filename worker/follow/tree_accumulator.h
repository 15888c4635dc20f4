// Adds the gradients of slices in the order of their tree (common/plan/slices.h), as they are
// computed from left to right, so that the sum has the bits of the server's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

// Where the gradient of a slice, or the sum of a subtree, goes. There is a buffer for each level:
// that of level 0 gets the sum of the part, the others hold sums that still lack something.
struct SumPlace {
  size_t level = 0;  // where it is written
  // Then each of these levels, innermost first, gets the sum of itself and the next higher one.
  std::vector<size_t> pending = {};
  // Nothing follows: the sum of the part is complete then, chunk by chunk.
  bool last = true;
};

class SliceSums {
 public:
  virtual ~SliceSums() = default;
  // Computes the slice's gradient, and writes and adds it where the place says. Returns false if
  // the slice has no samples.
  virtual bool ComputeSlice(int64_t slice, const SumPlace& place) = 0;
  // Adds to each of these levels, innermost first, the next higher one.
  virtual void AddUp(const std::vector<size_t>& pending) = 0;
};

// Adds the gradients of the slices below `node`, of a batch with this number of slices. Returns
// false if they have no samples.
bool AccumulateSlices(const TreeNode& node, int64_t slices, SliceSums& sums,
                      const SumPlace& place = {});

}  // namespace muster
