// Divides a batch into slices and defines the order in which their gradients are added: a fixed
// binary tree over the slice index. The order does not depend on which worker computed a slice, so
// the bits of the sum depend only on the number of slices.
#pragma once

#include <cstdint>
#include <vector>

namespace muster {

// The half-open range [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

// Returns part `index` of `parts` nearly equal contiguous parts of [0, n): floor(n i / parts) …
// floor(n (i + 1) / parts) for i = index. Used for the samples of a slice and for the slices of a
// worker.
Range EvenPart(int64_t n, int64_t parts, int64_t index);

// A node of the tree covers the slices [index << level, min((index + 1) << level, slices)). Its
// children are {level - 1, 2 index} and {level - 1, 2 index + 1}; empty children are not summed.
struct TreeNode {
  uint32_t level = 0;
  uint32_t index = 0;
  bool operator==(const TreeNode&) const = default;
};

Range Covers(const TreeNode& node, int64_t slices);
TreeNode Root(int64_t slices);

// Returns the slices that these nodes cover; adjacent slices form one range. `nodes` must be
// disjoint and in order.
std::vector<Range> CoveredBy(const std::vector<TreeNode>& nodes, int64_t slices);

// Returns the smallest set of nodes that together cover exactly `range`, from left to right. A
// worker with these slices pushes one gradient per node.
std::vector<TreeNode> Decompose(Range range, int64_t slices);

}  // namespace muster
