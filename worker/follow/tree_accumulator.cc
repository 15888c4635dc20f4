#include "worker/follow/tree_accumulator.h"

namespace muster {

bool AccumulateSlices(const TreeNode& node, int64_t slices, SliceSums& sums,
                      const SumPlace& place) {
  if (node.level == 0) return sums.ComputeSlice(node.index, place);
  const TreeNode left{node.level - 1, 2 * node.index}, right{node.level - 1, 2 * node.index + 1};
  if (Covers(right, slices).empty()) return AccumulateSlices(left, slices, sums, place);
  const SumPlace alone{.level = place.level, .pending = {}, .last = false};
  if (!AccumulateSlices(left, slices, sums, alone)) {
    return AccumulateSlices(right, slices, sums, place);  // the right half is the sum
  }
  SumPlace behind{.level = place.level + 1, .pending = {place.level}, .last = place.last};
  behind.pending.insert(behind.pending.end(), place.pending.begin(), place.pending.end());
  if (AccumulateSlices(right, slices, sums, behind)) return true;
  sums.AddUp(place.pending);  // the left half is the sum
  return true;
}

}  // namespace muster
