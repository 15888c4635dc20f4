#include "ps/update/tree_sum.h"

#include <algorithm>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr size_t kMaxDepth = 64;  // enough for a tree of 2^32 slices

}  // namespace

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

TreeSum::Addends TreeSum::RunToLast(const UpdateKernelTable& kernels, WireType type,
                                    std::span<const void* const> parts, size_t at, size_t count,
                                    std::span<float> scratch) const {
  return type == wire::FP32 ? RunFloats(kernels, parts, at, count, scratch)
                            : Addends{RunHalves(type, parts, at, count, scratch), nullptr};
}

TreeSum::Addends TreeSum::RunFloats(const UpdateKernelTable& kernels,
                                    std::span<const void* const> parts, size_t at, size_t count,
                                    std::span<float> scratch) const {
  Addends stack[kMaxDepth];  // `right` is used only for the last addition
  size_t depth = 0;
  for (size_t op = 0; op < program_.size(); ++op) {
    if (program_[op] != kAdd) {
      const void* const part = parts[static_cast<size_t>(program_[op])];
      stack[depth++] = {part == nullptr ? nullptr : static_cast<const float*>(part) + at, nullptr};
      continue;
    }
    const float* right = stack[--depth].left;
    Addends& sum = stack[depth - 1];
    if (right == nullptr) continue;
    float* const place =
        scratch.data() + (depth - 1) * kBlock;  // possible location of the left operand
    if (sum.left == nullptr) {
      sum.left = right;
      if (right == place + kBlock) {  // in scratch, in the slot of the next operand
        std::copy_n(right, count, place);
        sum.left = place;
      }
    } else if (op + 1 == program_.size()) {
      sum.right = right;
    } else {
      kernels.add(sum.left, right, place, count);
      sum.left = place;
    }
  }
  return stack[0];
}

const float* TreeSum::RunHalves(WireType type, std::span<const void* const> parts, size_t at,
                                size_t count, std::span<float> scratch) const {
  // A value that is not in a part is in scratch, in its stack slot.
  struct Value {
    bool any = false;
    const uint16_t* part = nullptr;
  } stack[kMaxDepth];
  size_t depth = 0;
  const auto place = [&](size_t level) { return scratch.data() + level * kBlock; };
  const auto widen = [&](size_t level) {
    if (stack[level].part != nullptr) Widen(type, {stack[level].part, count}, place(level));
  };
  for (const int op : program_) {
    if (op != kAdd) {
      const void* const part = parts[static_cast<size_t>(op)];
      stack[depth++] = {part != nullptr,
                        part == nullptr ? nullptr : static_cast<const uint16_t*>(part) + at};
      continue;
    }
    --depth;
    Value& left = stack[depth - 1];
    const Value& right = stack[depth];
    if (!right.any) continue;
    if (!left.any) {
      if (right.part == nullptr) std::copy_n(place(depth), count, place(depth - 1));
      left = right;
      continue;
    }
    if (left.part != nullptr && right.part != nullptr) {
      AddHalves(type, left.part, right.part, place(depth - 1), count);
    } else {
      widen(depth - 1);
      widen(depth);
      AddOnWire(type, place(depth - 1), place(depth), place(depth - 1), count);
    }
    left.part = nullptr;
  }
  if (!stack[0].any) return nullptr;
  widen(0);
  return place(0);
}

const float* TreeSum::Run(const UpdateKernelTable& kernels, WireType type,
                          std::span<const void* const> parts, size_t at, size_t count,
                          std::span<float> scratch) const {
  const Addends sum = RunToLast(kernels, type, parts, at, count, scratch);
  if (sum.right == nullptr) return sum.left;
  kernels.add(sum.left, sum.right, scratch.data(), count);
  return scratch.data();
}

}  // namespace muster
