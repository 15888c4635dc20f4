#include "ps/tree_sum.h"

#include <algorithm>

#include "common/error.h"

namespace muster {

TreeSum::TreeSum(const std::vector<TreeNode>& nodes, int64_t slices) {
  Visit(Root(slices), nodes, slices);
  size_t depth = 0;
  for (const int op : program_) {
    depth = op == kAdd ? depth - 1 : depth + 1;
    depth_ = std::max(depth_, depth);
  }
  MUSTER_CHECK(depth == 1);
}

void TreeSum::Visit(const TreeNode& node, const std::vector<TreeNode>& nodes, int64_t slices) {
  const auto found = std::find(nodes.begin(), nodes.end(), node);
  if (found != nodes.end()) {
    program_.push_back(static_cast<int>(found - nodes.begin()));
    return;
  }
  MUSTER_CHECK(node.level > 0);
  const TreeNode left{node.level - 1, 2 * node.index}, right{node.level - 1, 2 * node.index + 1};
  Visit(left, nodes, slices);
  if (Covers(right, slices).empty()) return;
  Visit(right, nodes, slices);
  program_.push_back(kAdd);
}

const float* TreeSum::Run(const PassKernels& kernels, WireType type,
                          std::span<const void* const> parts, size_t at, size_t count,
                          std::span<float> scratch) const {
  constexpr size_t kMaxDepth = 64;  // of a tree over at most 2^32 slices
  const float* stack[kMaxDepth];
  size_t depth = 0;
  for (const int op : program_) {
    if (op != kAdd) {
      const void* part = parts[static_cast<size_t>(op)];
      if (part == nullptr) {
        stack[depth++] = nullptr;
      } else if (type == wire::FP32) {
        stack[depth++] = static_cast<const float*>(part) + at;
      } else {
        float* const widened = scratch.data() + depth * kBlock;
        Widen(type, {static_cast<const uint16_t*>(part) + at, count}, widened);
        stack[depth++] = widened;
      }
      continue;
    }
    const float* right = stack[--depth];
    const float* left = stack[depth - 1];
    if (right == nullptr) continue;
    if (left == nullptr) {
      stack[depth - 1] = right;
      continue;
    }
    float* sum = scratch.data() + (depth - 1) * kBlock;  // where `left` may be
    kernels.add(left, right, sum, count);
    RoundToWire(type, {sum, count});
    stack[depth - 1] = sum;
  }
  return stack[0];
}

}  // namespace muster
