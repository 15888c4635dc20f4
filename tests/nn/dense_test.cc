#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

TEST(DenseTest, MatchesTheReference) {
  for (const int threads : TestThreads()) {
    const auto backend = MakeTestBackend(threads);
    for (const int64_t inputs : {1, 3, 5, 7, 17, 64, 300}) {
      for (const int units : {1, 2, 5, 10, 17, 64}) {
        for (const int64_t batch : {1, 2, 5, 64}) {
          const std::string layer = fmt::format("dense {{ units: {} }}", units);
          ExpectMatchesReference(*backend,
                                 {.layer = layer, .input = {1, 1, inputs}, .batch = batch});
        }
      }
    }
  }
}

TEST(DenseTest, FusedAndUnfusedVariantsMatchTheReference) {
  const auto backend = MakeTestBackend(1);
  for (int variant = 0; variant < 16; ++variant) {
    ExpectMatchesReference(*backend,
                           {.layer = (variant & 8) != 0 ? "dense { units: 19 use_bias: false }"
                                                        : "dense { units: 19 }",
                            .input = {3, 4, 5},  // an image, flattened
                            .batch = 6,
                            .activation = variant & 1 ? Activation::kRelu : Activation::kNone,
                            .input_is_relu = (variant & 2) != 0,
                            .input_gradient = (variant & 4) != 0});
  }
}

// The special product for input gradients, for rows of a multiple of 512. Covers partial pieces of
// its 128 units and 192 inputs, and row counts that are not multiples of four.
TEST(DenseTest, LargeLayersMatchTheReference) {
  for (const int threads : TestThreads()) {
    const auto backend = MakeTestBackend(threads);
    for (const OpCase& c :
         {OpCase{.layer = "dense { units: 264 }", .input = {1, 1, 512}, .batch = 16},
          OpCase{.layer = "dense { units: 136 }", .input = {2, 2, 256}, .batch = 17},
          OpCase{.layer = "dense { units: 88 }", .input = {1, 1, 1536}, .batch = 18},
          OpCase{.layer = "dense { units: 257 }", .input = {1, 1, 512}, .batch = 16}}) {
      for (const bool input_is_relu : {false, true}) {
        OpCase variant = c;
        variant.input_is_relu = input_is_relu;
        ExpectMatchesReference(*backend, variant);
      }
    }
  }
}

TEST(DenseTest, TheLargeInputGradientHasTheSameBitsWithAnyNumberOfThreads) {
  if (!__builtin_cpu_supports("avx2") || __builtin_cpu_supports("avx512f")) {
    GTEST_SKIP() << "this processor uses oneDNN for all matrix products";
  }
  const OpCase c = {.layer = "dense { units: 136 }", .input = {1, 1, 1024}, .batch = 19};
  const OpInputs inputs = RandomInputs(c);
  const OpResult one = RunOp(*MakeTestBackend(1), c, inputs);
  const OpResult three = RunOp(*MakeTestBackend(3), c, inputs);
  EXPECT_EQ(0, std::memcmp(one.dx[0].floats().data(), three.dx[0].floats().data(),
                           one.dx[0].floats().size_bytes()));
}

TEST(DenseTest, WhatIsNotFiniteReachesTheInputGradient) {
  const OpCase c = {.layer = "dense { units: 264 }", .input = {1, 1, 512}, .batch = 16};
  const auto backend = MakeTestBackend(1);
  OpInputs inputs = RandomInputs(c);
  inputs.dy[3 * 264 + 7] = std::numeric_limits<float>::quiet_NaN();
  const OpResult result = RunOp(*backend, c, inputs);
  for (int64_t i = 0; i < 16 * 512; ++i) {
    ASSERT_EQ(std::isnan(result.dx[0].floats()[i]), i / 512 == 3) << i;
  }
}

}  // namespace
}  // namespace muster
