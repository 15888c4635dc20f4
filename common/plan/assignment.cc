#include "common/plan/assignment.h"

#include <numeric>

#include "common/plan/split.h"

namespace muster {

Assignment AssignEvenly(int64_t slices, uint32_t ranks) {
  return {.slices = slices, .nodes = NeighbouringShares(EvenSizes(slices, ranks))};
}

std::vector<std::vector<TreeNode>> NeighbouringShares(const std::vector<int64_t>& sizes,
                                                      bool by_slice) {
  const int64_t slices = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  std::vector<std::vector<TreeNode>> shares;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    const int64_t end = begin + size;
    if (by_slice) {
      std::vector<TreeNode>& share = shares.emplace_back();
      for (int64_t slice = begin; slice < end; ++slice) {
        share.push_back({0, static_cast<uint32_t>(slice)});
      }
    } else {
      shares.push_back(Decompose({begin, end}, slices));
    }
    begin = end;
  }
  return shares;
}

}  // namespace muster
