#include "common/plan/slices.h"

#include <algorithm>

#include "common/base/error.h"

namespace muster {

Range EvenPart(int64_t n, int64_t parts, int64_t index) {
  // floor(n i / parts) without overflow, for i <= parts.
  const auto cut = [&](int64_t i) { return n / parts * i + n % parts * i / parts; };
  return {cut(index), cut(index + 1)};
}

Range Covers(const TreeNode& node, int64_t slices) {
  const int64_t begin = static_cast<int64_t>(node.index) << node.level;
  const int64_t end = (static_cast<int64_t>(node.index) + 1) << node.level;
  return {std::min(begin, slices), std::min(end, slices)};
}

TreeNode Root(int64_t slices) {
  TreeNode root;
  while ((int64_t{1} << root.level) < slices) ++root.level;
  return root;
}

std::vector<Range> CoveredBy(const std::vector<TreeNode>& nodes, int64_t slices) {
  std::vector<Range> ranges;
  for (const TreeNode& node : nodes) {
    const Range covered = Covers(node, slices);
    if (!ranges.empty() && ranges.back().end == covered.begin) {
      ranges.back().end = covered.end;
    } else {
      ranges.push_back(covered);
    }
  }
  return ranges;
}

std::vector<TreeNode> Decompose(Range range, int64_t slices) {
  MUSTER_CHECK(0 <= range.begin && range.begin <= range.end && range.end <= slices);
  const uint32_t top = Root(slices).level;
  std::vector<TreeNode> nodes;
  for (int64_t at = range.begin; at < range.end;) {
    TreeNode node{0, static_cast<uint32_t>(at)};
    // Move up while the parent begins at the same slice and does not exceed the range.
    while (node.level < top && node.index % 2 == 0) {
      const TreeNode parent{node.level + 1, node.index / 2};
      if (Covers(parent, slices).end > range.end) break;
      node = parent;
    }
    nodes.push_back(node);
    at = Covers(node, slices).end;
  }
  return nodes;
}

}  // namespace muster
