#include "common/plan/assignment.h"

#include <algorithm>

namespace muster {

std::vector<Range> Assignment::SlicesOf(uint32_t rank) const {
  std::vector<Range> ranges;
  for (const TreeNode& node : nodes[rank]) {
    const Range covered = Covers(node, slices);
    if (!ranges.empty() && ranges.back().end == covered.begin) {
      ranges.back().end = covered.end;
    } else {
      ranges.push_back(covered);
    }
  }
  return ranges;
}

bool Assignment::Holds(uint32_t rank, int64_t slice) const {
  return std::ranges::any_of(nodes[rank], [&](const TreeNode& node) {
    const Range covered = Covers(node, slices);
    return covered.begin <= slice && slice < covered.end;
  });
}

Assignment AssignEvenly(int64_t slices, uint32_t ranks) {
  Assignment assignment{.slices = slices, .nodes = {}};
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    assignment.nodes.push_back(Decompose(EvenPart(slices, ranks, rank), slices));
  }
  return assignment;
}

}  // namespace muster
