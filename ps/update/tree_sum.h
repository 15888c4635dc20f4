// The sum of gradient parts in the order of the slice tree. With a 16-bit wire type, parts are
// widened and each sum is rounded, exactly as workers round their sums.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "ps/update/update_kernels.h"

namespace muster {

// The additions that combine a set of subtrees into the root, as a stack program: computed once,
// run for every block of every chunk. Immutable and thread-safe.
class TreeSum {
 public:
  // `nodes` must cover each slice exactly once.
  TreeSum(const std::vector<TreeNode>& nodes, int64_t slices);

  // Number of floats to add per block, so that all blocks of a small stack fit in the L1 cache.
  static constexpr size_t kBlock = 1024;
  size_t scratch_floats() const { return depth_ * kBlock; }

  // The sum before its last addition, which a kernel can do while it reads: left + right, only
  // left, or nothing. With 16 bits, `right` is always null, because the sum must be rounded.
  struct Addends {
    const float* left = nullptr;
    const float* right = nullptr;
  };
  // Adds values [at, at + count), count <= kBlock. parts[i] has the values of nodes[i], floats or
  // halves as in `type`, or is null if that subtree has no samples and does not take part. Sums and
  // widened values are stored in `scratch`.
  Addends RunToLast(const UpdateKernelTable& kernels, WireType type,
                    std::span<const void* const> parts, size_t at, size_t count,
                    std::span<float> scratch) const;
  // Like RunToLast, but includes the last addition. Null if there are no samples.
  const float* Run(const UpdateKernelTable& kernels, WireType type,
                   std::span<const void* const> parts, size_t at, size_t count,
                   std::span<float> scratch) const;

 private:
  static constexpr int kAdd = -1;
  Addends RunFloats(const UpdateKernelTable& kernels, std::span<const void* const> parts, size_t at,
                    size_t count, std::span<float> scratch) const;
  // Returns the rounded sum, in scratch, or null.
  const float* RunHalves(WireType type, std::span<const void* const> parts, size_t at, size_t count,
                         std::span<float> scratch) const;
  void Visit(const TreeNode& node, const std::vector<TreeNode>& nodes, int64_t slices);

  std::vector<int> program_;  // the index of a part to push, or kAdd
  size_t depth_ = 0;
};

}  // namespace muster
