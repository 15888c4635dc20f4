// Compares bfloat16 ops with plain loops on the same rounded numbers. They differ by the rounding
// of results (2^-9 each) and of intermediate values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/element_type.h"
#include "tests/cuda/backend/host_facing.h"
#include "tests/cuda/software_gpu/control.h"
#include "tests/nn/golden_file.h"
#include "tests/nn/op_case.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace muster {
namespace {

constexpr double kTolerance = 0.004;  // 2^-8, in the 2-norm

void Round(std::vector<float>& values) { RoundTo(ElementType::kBFloat16, values); }

class Bf16Test : public ::testing::TestWithParam<OpCase> {};

TEST_P(Bf16Test, MatchesTheReference) {
  for (const auto convolution :
       {CudaOptions::Convolution::kCudnn, CudaOptions::Convolution::kGemm}) {
    const auto backend =
        testing::MakeHostFacing(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kBf16,
                                                      .convolution = convolution})
                                    .backend);
    OpCase c = GetParam();
    c.tolerance = kTolerance;
    OpInputs inputs = RandomInputs(c);
    for (auto& input : inputs.inputs) Round(input);
    Round(inputs.dy);
    Round(inputs.weights);
    ExpectMatchesReference(*backend, c, inputs);
  }
  EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
  EXPECT_THAT(software_gpu::KernelsWithoutResources(), ::testing::IsEmpty());
}

// Each layer on its own, in the shapes of its golden cases, and some with fused ops.
std::vector<OpCase> Cases() {
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

INSTANTIATE_TEST_SUITE_P(Ops, Bf16Test, ::testing::ValuesIn(Cases()),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

}  // namespace
}  // namespace muster
