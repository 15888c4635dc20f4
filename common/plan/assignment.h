// The assignment of a batch's slices to workers. Only the server decides it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

struct Assignment {
  int64_t from_step = 0;  // valid from this step until the next assignment
  int64_t slices = 0;     // number of slices of a batch
  // The subtrees whose gradients each rank pushes, from left to right. They cover each slice once.
  std::vector<std::vector<TreeNode>> nodes;

  uint32_t ranks() const { return static_cast<uint32_t>(nodes.size()); }
  // The slices of a rank; adjacent slices form one range.
  std::vector<Range> SlicesOf(uint32_t rank) const { return CoveredBy(nodes[rank], slices); }

  bool operator==(const Assignment&) const = default;
};

// Returns nearly equal contiguous shares: rank r gets part r of the slices (EvenPart).
Assignment AssignEvenly(int64_t slices, uint32_t ranks);

// Returns contiguous shares of the given sizes, which must add up to all slices. Each share
// consists of as few subtrees as possible or, with `by_slice`, of one subtree per slice.
std::vector<std::vector<TreeNode>> NeighbouringShares(const std::vector<int64_t>& sizes,
                                                      bool by_slice = false);

}  // namespace muster
