// The sum of gradient parts in the order of the slice tree. With 16 bits on the wire, the parts are
// widened, and each sum is rounded, as a worker rounds the sums that it makes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "ps/update/update_kernels.h"

namespace muster {

// The additions that make the root out of a set of subtrees, as a program for a stack machine:
// worked out once, run for every block of every chunk. Immutable; any thread may run it.
class TreeSum {
 public:
  // `nodes` cover all slices, each exactly once.
  TreeSum(const std::vector<TreeNode>& nodes, int64_t slices);

  // Floats that are added at a time: all blocks of a small stack stay in the L1 cache.
  static constexpr size_t kBlock = 1024;
  size_t scratch_floats() const { return depth_ * kBlock; }

  // The sum, but for its last addition, which a kernel can do while it reads: left + right, or
  // left alone, or nothing. With 16 bits always without `right`: the sum is to be rounded.
  struct Addends {
    const float* left = nullptr;
    const float* right = nullptr;
  };
  // parts[i] are the values of nodes[i], floats or halves by `type`, or null if that subtree holds
  // no samples: it then takes no part in the sum. Of values [at, at + count), count <= kBlock. What
  // is added up or widened is in `scratch`, what is not in a part.
  Addends RunToLast(const UpdateKernelTable& kernels, WireType type,
                    std::span<const void* const> parts, size_t at, size_t count,
                    std::span<float> scratch) const;
  // With the last addition. Null if there is nothing.
  const float* Run(const UpdateKernelTable& kernels, WireType type,
                   std::span<const void* const> parts, size_t at, size_t count,
                   std::span<float> scratch) const;

 private:
  static constexpr int kAdd = -1;
  Addends RunFloats(const UpdateKernelTable& kernels, std::span<const void* const> parts, size_t at,
                    size_t count, std::span<float> scratch) const;
  // Rounded, and in scratch, or null.
  const float* RunHalves(WireType type, std::span<const void* const> parts, size_t at, size_t count,
                         std::span<float> scratch) const;
  void Visit(const TreeNode& node, const std::vector<TreeNode>& nodes, int64_t slices);

  std::vector<int> program_;  // the index of a part to push, or kAdd
  size_t depth_ = 0;
};

}  // namespace muster
