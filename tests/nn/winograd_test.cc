// 3x3 convolutions of the CPU backend by Winograd's algorithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/nn/op_case.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster {
namespace winograd_test {

std::string Conv(int filters, int kernel, int stride, const std::string& padding) {
  return fmt::format("conv2d {{ filters: {} kernel: {} stride: {} padding: {} }}", filters, kernel,
                     stride, padding);
}

// Partial tiles, blocks of tiles and strips of channels. All cases have enough channels on both
// sides and at least 16 tiles of 2x2 outputs.
class WinogradTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = MakeCpuBackend(1);

  // Whether the result differs from the direct sums, which proves that Winograd was used.
  bool Differs(const OpCase& c) const {
    const OpInputs inputs = RandomInputs(c);
    const auto direct = MakeCpuBackend(1, {.winograd = false});
    const OpResult a = RunOp(*backend_, c, inputs), b = RunOp(*direct, c, inputs);
    return !SameBits(a.output, b.output);
  }
  static bool SameBits(const Arena& a, const Arena& b) {
    return std::memcmp(a.floats().data(), b.floats().data(), a.floats().size_bytes()) == 0;
  }
  void ExpectWinogradMatchesReference(const OpCase& c) {
    ExpectMatchesReference(*backend_, c);
    EXPECT_EQ(Differs(c), available_) << Name(c);
  }

  // See WinogradFits.
  const bool available_ = __builtin_cpu_supports("avx2");
};

TEST_F(WinogradTest, MatchesTheReferenceForAnySizeAndPadding) {
  for (int64_t height = 3; height <= 8; ++height) {
    for (const int64_t width : {3, 6, 7}) {
      for (const char* padding : {"SAME", "VALID", "EXPLICIT pad: 1", "EXPLICIT pad: 2"}) {
        ExpectWinogradMatchesReference(
            {.layer = fmt::format("conv2d {{ filters: 16 kernel: 3 padding: {} }}", padding),
             .input = {height, width, 24},
             .batch = 17});
      }
    }
  }
  // At most as large as a tile, or narrower.
  for (const Shape& image : {Shape{1, 1, 16}, Shape{2, 2, 16}, Shape{1, 9, 16}, Shape{9, 1, 16}}) {
    ExpectWinogradMatchesReference({.layer = Conv(16, 3, 1, "SAME"), .input = image, .batch = 19});
  }
  // One image.
  ExpectWinogradMatchesReference({.layer = Conv(16, 3, 1, "SAME"), .input = {8, 7, 16}});
}

TEST_F(WinogradTest, MatchesTheReferenceForAnyNumberOfPanels) {
  for (const int in : {16, 24, 32, 40, 72, 136}) {
    for (const int out : {16, 32, 56, 80, 104}) {
      ExpectWinogradMatchesReference(
          {.layer = Conv(out, 3, 1, "SAME"), .input = {7, 5, in}, .batch = 2});
    }
  }
  // More channels than are summed in one piece.
  ExpectWinogradMatchesReference(
      {.layer = Conv(16, 3, 1, "SAME"), .input = {4, 3, 264}, .batch = 5});
  ExpectWinogradMatchesReference(
      {.layer = Conv(264, 3, 1, "VALID"), .input = {5, 5, 16}, .batch = 5});
}

TEST_F(WinogradTest, MatchesTheReferenceOverSeveralBlocks) {
  // 1,053 tiles: two blocks of 512 and a short one.
  ExpectWinogradMatchesReference(
      {.layer = Conv(16, 3, 1, "SAME"), .input = {25, 17, 16}, .batch = 9});
  // Blocks that end in the middle of an image.
  ExpectWinogradMatchesReference(
      {.layer = Conv(24, 3, 1, "VALID"), .input = {49, 47, 16}, .batch = 1});
}

TEST_F(WinogradTest, FusedAndUnfusedVariantsMatchTheReference) {
  for (int variant = 0; variant < 16; ++variant) {
    ExpectWinogradMatchesReference(
        {.layer = fmt::format("conv2d {{ filters: 32 kernel: 3 padding: SAME use_bias: {} }}",
                              (variant & 8) != 0),
         .input = {7, 8, 24},
         .batch = 2,
         .activation = variant & 1 ? Activation::kRelu : Activation::kNone,
         .input_is_relu = (variant & 2) != 0,
         .input_gradient = (variant & 4) != 0});
  }
}

// Convolutions that do not qualify have the bits of direct sums.
TEST_F(WinogradTest, OtherConvolutionsAreDirect) {
  const auto conv = [](const std::string& more) {
    return fmt::format("conv2d {{ padding: SAME {} }}", more);
  };
  for (const OpCase& c :
       {OpCase{.layer = conv("filters: 16 kernel: 3"), .input = {8, 8, 8}, .batch = 2},
        OpCase{.layer = conv("filters: 8 kernel: 3"), .input = {8, 8, 16}, .batch = 2},
        OpCase{.layer = conv("filters: 17 kernel: 3"), .input = {8, 8, 16}, .batch = 2},
        OpCase{.layer = conv("filters: 16 kernel: 3"), .input = {8, 8, 20}, .batch = 2},
        OpCase{.layer = conv("filters: 16 kernel: 3"), .input = {6, 6, 16}, .batch = 1},
        OpCase{.layer = conv("filters: 16 kernel: 3 stride: 2"), .input = {8, 8, 16}, .batch = 8},
        OpCase{.layer = conv("filters: 16 kernel: [3, 1]"), .input = {8, 8, 16}, .batch = 2},
        OpCase{.layer = conv("filters: 16 kernel: 5"), .input = {8, 8, 16}, .batch = 2},
        OpCase{
            .layer = conv("filters: 32 kernel: 3 groups: 2"), .input = {8, 8, 32}, .batch = 2}}) {
    ExpectMatchesReference(*backend_, c);
    EXPECT_FALSE(Differs(c)) << Name(c);
  }
}

TEST_F(WinogradTest, TheBitsDoNotDependOnTheNumberOfThreads) {
  if (!available_) GTEST_SKIP() << "this processor uses direct sums for all convolutions";
  for (const Shape& image : {Shape{25, 17, 16}, Shape{6, 6, 72}}) {
    const OpCase c = {.layer = Conv(40, 3, 1, "SAME"), .input = image, .batch = 9};
    const OpInputs inputs = RandomInputs(c);
    const OpResult one = RunOp(*backend_, c, inputs);
    for (const int threads : {2, 3}) {
      const OpResult more = RunOp(*MakeCpuBackend(threads), c, inputs);
      EXPECT_TRUE(SameBits(one.output, more.output)) << threads;
      EXPECT_TRUE(SameBits(one.dx[0], more.dx[0])) << threads;
      EXPECT_TRUE(SameBits(one.dw, more.dw)) << threads;
      EXPECT_TRUE(SameBits(one.db, more.db)) << threads;
    }
  }
}

// Divergence must remain visible: values that are not finite reach every output that depends on
// them, through relu, and the gradients.
TEST_F(WinogradTest, WhatIsNotFiniteReachesTheOutput) {
  const OpCase c = {.layer = Conv(24, 3, 1, "SAME"),
                    .input = {7, 8, 16},
                    .batch = 2,
                    .activation = Activation::kRelu};
  const auto all_finite = [](const Arena& arena) {
    return std::all_of(arena.floats().begin(), arena.floats().end(),
                       [](float x) { return std::isfinite(x); });
  };
  const int64_t place = ((1 * 7 + 3) * 8 + 4) * 16 + 5;  // image 1, row 3, column 4, channel 5
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    OpInputs inputs = RandomInputs(c);
    inputs.inputs[0][place] = bad;
    const OpResult input = RunOp(*backend_, c, inputs);
    for (int64_t row = 2; row <= 4; ++row) {
      for (int64_t column = 3; column <= 5; ++column) {
        const float* const pixel = input.output.floats().data() + ((7 + row) * 8 + column) * 24;
        EXPECT_TRUE(std::any_of(pixel, pixel + 24, [](float x) { return !std::isfinite(x); }))
            << bad << " at row " << row << ", column " << column;
      }
    }
    EXPECT_FALSE(all_finite(input.dw)) << bad;
    // The other image is unaffected.
    EXPECT_TRUE(std::all_of(input.output.floats().begin(),
                            input.output.floats().begin() + 7 * 8 * 24,
                            [](float x) { return std::isfinite(x); }));

    inputs = RandomInputs(c);
    inputs.dy[((1 * 7 + 3) * 8 + 4) * 24 + 7] = bad;
    const OpResult gradient = RunOp(*backend_, c, inputs);
    EXPECT_FALSE(all_finite(gradient.dx[0])) << bad;
    EXPECT_FALSE(all_finite(gradient.dw)) << bad;
    EXPECT_FALSE(std::isfinite(gradient.db.floats()[7])) << bad;

    inputs = RandomInputs(c);
    inputs.weights[3 * 9 * 16 + 4 * 16 + 2] = bad;  // filter 3, its centre, channel 2
    const OpResult weights = RunOp(*backend_, c, inputs);
    EXPECT_FALSE(all_finite(weights.output)) << bad;
    EXPECT_FALSE(all_finite(weights.dx[0])) << bad;
  }
}

// The weights are transformed for each version, and the result is not used for others.
TEST_F(WinogradTest, NewWeightsAreUsedWithTheirVersion) {
  const OpCase c = {.layer = Conv(16, 3, 1, "SAME"), .input = {8, 8, 16}};
  const Layer layer = LayerOf(c);
  const auto op = backend_->MakeOp(layer, {.batch = 1, .mode = Mode::kInference});
  const OpInputs inputs = RandomInputs(c);
  const Arena x = ToArena(inputs.inputs[0]), bias = ToArena(inputs.bias);
  Arena scratch(op->scratch_bytes() / sizeof(float)), weights = ToArena(inputs.weights);
  const auto run = [&](int64_t version) {
    Arena output(inputs.dy.size());
    op->Forward({.input = x.floats().data(),
                 .output = output.floats().data(),
                 .weights = weights.floats().data(),
                 .bias = bias.floats().data(),
                 .weights_version = version,
                 .scratch = scratch.floats().data()});
    return output;
  };
  const Arena before = run(1), again = run(1);
  EXPECT_TRUE(SameBits(before, again));
  for (float& w : weights.floats()) w = -w;
  const Arena after = run(2);
  reference::Context context;
  context.weights = ToDoubles(weights.floats());
  context.bias = ToDoubles(inputs.bias);
  EXPECT_LE(RelativeL2(after.floats(),
                       reference::Forward(layer, 1, {ToDoubles(inputs.inputs[0])}, context)),
            c.tolerance);
}

}  // namespace winograd_test
}  // namespace muster
