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

TreeSum::Addends TreeSum::RunToLast(const PassKernels& kernels, WireType type,
                                    std::span<const void* const> parts, size_t at, size_t count,
                                    std::span<float> scratch) const {
  constexpr size_t kMaxDepth = 64;  // of a tree over at most 2^32 slices
  Addends stack[kMaxDepth];         // `right` only at the end
  size_t depth = 0;
  for (size_t op = 0; op < program_.size(); ++op) {
    if (program_[op] != kAdd) {
      const void* const part = parts[static_cast<size_t>(program_[op])];
      Addends& pushed = stack[depth++];
      pushed = {};
      if (part == nullptr) continue;
      if (type == wire::FP32) {
        pushed.left = static_cast<const float*>(part) + at;
      } else {
        float* const widened = scratch.data() + (depth - 1) * kBlock;
        Widen(type, {static_cast<const uint16_t*>(part) + at, count}, widened);
        pushed.left = widened;
      }
      continue;
    }
    const float* right = stack[--depth].left;
    Addends& sum = stack[depth - 1];
    if (right == nullptr) continue;
    float* const place = scratch.data() + (depth - 1) * kBlock;  // where the left one may be
    if (sum.left == nullptr) {
      sum.left = right;
      if (right == place + kBlock) {  // in scratch, where the next one will be
        std::copy_n(right, count, place);
        sum.left = place;
      }
    } else if (op + 1 == program_.size() && type == wire::FP32) {
      sum.right = right;
    } else {
      kernels.add(sum.left, right, place, count);
      RoundToWire(type, {place, count});
      sum.left = place;
    }
  }
  return stack[0];
}

const float* TreeSum::Run(const PassKernels& kernels, WireType type,
                          std::span<const void* const> parts, size_t at, size_t count,
                          std::span<float> scratch) const {
  const Addends sum = RunToLast(kernels, type, parts, at, count, scratch);
  if (sum.right == nullptr) return sum.left;
  kernels.add(sum.left, sum.right, scratch.data(), count);
  return scratch.data();
}

}  // namespace muster
