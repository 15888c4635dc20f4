// Ops on 16-bit activations for comparison with plain loops on the same rounded numbers. The
// results differ by the rounding of results (of bfloat16 2^-9 each) and of intermediate values.
#pragma once

#include <vector>

#include "common/base/element_type.h"
#include "tests/nn/golden_file.h"
#include "tests/nn/op_case.h"

namespace muster {

// In the 2-norm.
constexpr double kBf16Tolerance = 0.004;   // 2^-8
constexpr double kFp16Tolerance = 0.0005;  // 2^-11

// Each layer on its own, in the shapes of its golden cases, and some with fused ops.
inline std::vector<OpCase> Bf16Cases() {
  const Activation relu = Activation::kRelu;
  std::vector<OpCase> cases = {
      {.layer = "dense { units: 17 }", .input = {1, 1, 33}, .batch = 5, .activation = relu},
      {.layer = "dense { units: 16 }", .input = {2, 2, 8}, .batch = 8, .input_is_relu = true},
      {.layer = "conv2d { filters: 8 kernel: 3 padding: SAME }",
       .input = {6, 5, 16},
       .batch = 3,
       .activation = relu,
       .input_is_relu = true},
      {.layer = "conv2d { filters: 6 kernel: 3 stride: 2 padding: SAME groups: 3 }",
       .input = {7, 8, 9},
       .batch = 2},
      {.layer = "conv2d { filters: 8 kernel: 1 }", .input = {4, 4, 8}, .batch = 2},
      {.layer = "conv2d { filters: 8 kernel: 3 padding: SAME groups: 8 }",
       .input = {6, 6, 8},
       .batch = 2,
       .activation = relu},
      {.layer = "batch_norm {}", .input = {5, 5, 8}, .batch = 4, .activation = relu},
      {.layer = "batch_norm {}", .input = {3, 3, 7}, .batch = 4, .fuse_add = true},
      {.layer = "add {}",
       .input = {3, 3, 8},
       .batch = 2,
       .activation = relu,
       .other_channels = {8}},
  };
  for (const GoldenCase& golden : GoldenCases()) {
    if (golden.Has("labels")) continue;
    OpCase& c = cases.emplace_back(OpCase{.layer = golden.settings,
                                          .input = golden.inputs[0],
                                          .batch = golden.batch,
                                          .mode = golden.mode});
    for (size_t i = 1; i < golden.inputs.size(); ++i) {
      c.other_channels.push_back(golden.inputs[i].channels);
    }
  }
  return cases;
}

inline OpInputs RoundedInputs(const OpCase& c, ElementType type = ElementType::kBFloat16) {
  OpInputs inputs = RandomInputs(c);
  for (auto& input : inputs.inputs) RoundTo(type, input);
  RoundTo(type, inputs.dy);
  RoundTo(type, inputs.weights);
  return inputs;
}

}  // namespace muster
