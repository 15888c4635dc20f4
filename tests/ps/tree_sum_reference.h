// The sum of the slices' gradients for one element, straight from its definition.
#pragma once

#include <cstdint>
#include <functional>

#include "common/link/wire_type.h"
#include "common/plan/slices.h"

namespace muster::testing {

// The sum in tree order over the slices in [0, slices) that `node` covers. With 16 bits on the
// wire, rounds each slice's value and each sum. Skips `empty` slices. Sets `any` to whether others
// remain.
inline float TreeSumOf(const std::function<float(int64_t slice)>& value, const TreeNode& node,
                       int64_t slices, const std::function<bool(int64_t slice)>& empty, bool* any,
                       WireType type = wire::FP32) {
  const auto rounded = [type](float sum) {
    RoundToWire(type, {&sum, 1});
    return sum;
  };
  *any = false;
  if (Covers(node, slices).empty()) return 0;
  if (node.level == 0) {
    *any = !empty(node.index);
    return *any ? rounded(value(node.index)) : 0;
  }
  bool left_any, right_any;
  const float left =
      TreeSumOf(value, {node.level - 1, 2 * node.index}, slices, empty, &left_any, type);
  const float right =
      TreeSumOf(value, {node.level - 1, 2 * node.index + 1}, slices, empty, &right_any, type);
  *any = left_any || right_any;
  if (left_any && right_any) return rounded(left + right);
  return left_any ? left : right;
}

}  // namespace muster::testing
