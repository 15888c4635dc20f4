// Who computes which slices of a batch: a value that the server decides. Nobody else works it out.
#pragma once

#include <cstdint>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

struct Assignment {
  int64_t from_step = 0;  // it stands from this step on, until the next one
  int64_t slices = 0;     // of a batch
  // Of each rank, from left to right: the subtrees whose gradients it pushes. Together they cover
  // each slice once.
  std::vector<std::vector<TreeNode>> nodes;

  uint32_t ranks() const { return static_cast<uint32_t>(nodes.size()); }
  // The slices of a rank, neighbouring ones as one range.
  std::vector<Range> SlicesOf(uint32_t rank) const { return CoveredBy(nodes[rank], slices); }

  bool operator==(const Assignment&) const = default;
};

// Nearly equal contiguous shares: rank r has part r of the slices (EvenPart).
Assignment AssignEvenly(int64_t slices, uint32_t ranks);

// Contiguous shares of these sizes, which add up to all slices: each as few subtrees, or, with
// `by_slice`, one for each slice.
std::vector<std::vector<TreeNode>> NeighbouringShares(const std::vector<int64_t>& sizes,
                                                      bool by_slice = false);

}  // namespace muster
