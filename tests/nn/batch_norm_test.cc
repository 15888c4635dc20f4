#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6};

class BatchNormTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = MakeTestBackend(1);
};

TEST_F(BatchNormTest, MatchesTheReferenceForAnyShape) {
  for (const int64_t channels : {1, 3, 8, 9, 16, 24, 40, 75, 130}) {
    for (const int64_t size : {1, 2, 5, 11}) {
      ExpectMatchesReference(
          *backend_,
          {.layer = "batch_norm {}", .input = {size, 3, channels}, .batch = 5, .tolerance = 4e-6});
    }
  }
}

// A GPU sums the rows in parts, here 42 of them, and a warp adds 32 at a time.
TEST_F(BatchNormTest, MatchesTheReferenceForManyRows) {
  ExpectMatchesReference(
      *backend_, {.layer = "batch_norm {}", .input = {90, 30, 3}, .batch = 8, .tolerance = 4e-6});
}

// More channels than the software GPU has threads side by side.
TEST_F(BatchNormTest, MatchesTheReferenceForManyChannels) {
  for (const int64_t channels : {517, 2052}) {
    ExpectMatchesReference(
        *backend_,
        {.layer = "batch_norm {}", .input = {3, 1, channels}, .batch = 4, .tolerance = 4e-6});
  }
}

TEST_F(BatchNormTest, MatchesTheReferenceWithWhatIsFused) {
  for (const int64_t channels : {5, 16}) {
    for (const Activation activation : kActivations) {
      for (int variant = 0; variant < 32; ++variant) {
        const bool fuse_add = (variant & 1) != 0;
        const bool in_place = (variant & 8) != 0;
        const bool input_gradient = (variant & 2) != 0, other_gradients = (variant & 4) != 0;
        // Used when a gradient is not requested, or is shared and not written.
        if (in_place &&
            !(fuse_add ? other_gradients && activation != Activation::kNone : input_gradient)) {
          continue;
        }
        OpCase c{.layer = "batch_norm { epsilon: 0.001 }",
                 .input = {7, 6, channels},
                 .batch = 3,
                 .activation = activation,
                 .input_gradient = input_gradient,
                 .tolerance = 4e-6,
                 .fuse_add = fuse_add,
                 .other_gradients = other_gradients,
                 .in_place = in_place,
                 .frozen = (variant & 16) != 0};
        OpInputs inputs = RandomInputs(c);
        for (float& scale : inputs.weights)
          scale = 3 * scale + 3;  // so that relu6 reaches both limits
        for (float& shift : inputs.bias) shift += 2;
        ExpectMatchesReference(*backend_, c, inputs);
      }
    }
  }
}

TEST_F(BatchNormTest, MatchesTheReferenceInInference) {
  for (const Activation activation : kActivations) {
    for (const bool fuse_add : {false, true}) {
      ExpectMatchesReference(*backend_, {.layer = "batch_norm { epsilon: 0.01 }",
                                         .input = {3, 5, 20},
                                         .batch = 2,
                                         .activation = activation,
                                         .fuse_add = fuse_add,
                                         .mode = Mode::kInference});
    }
  }
}

TEST_F(BatchNormTest, DeliversTheVarianceThatTheConfigAsksFor) {
  // Two values, -1 and 3: mean 1, squared distances 4 and 4.
  const OpInputs inputs{.inputs = {{-1, 3}},
                        .dy = {1, 0},
                        .weights = {1},
                        .bias = {0},
                        .running_mean = {0},
                        .running_variance = {1}};
  for (const auto& [convention, variance] : {std::pair{"UNBIASED", 8.0f}, {"BIASED", 4.0f}}) {
    const OpCase c{.layer = fmt::format("batch_norm {{ running_variance: {} }}", convention),
                   .input = {1, 1, 1},
                   .batch = 2};
    const OpResult got = RunOp(*backend_, c, inputs);
    EXPECT_FLOAT_EQ(got.mean.floats()[0], 1);
    EXPECT_FLOAT_EQ(got.variance.floats()[0], variance);
    EXPECT_NEAR(got.output.floats()[1], 1, 1e-5);  // normalised with the biased variance
  }
}

TEST_F(BatchNormTest, OneValuePerChannelHasNoVariance) {
  const OpInputs inputs{.inputs = {{5}},
                        .dy = {1},
                        .weights = {2},
                        .bias = {3},
                        .running_mean = {0},
                        .running_variance = {1}};
  const OpResult got = RunOp(*backend_, {.layer = "batch_norm {}", .input = {1, 1, 1}}, inputs);
  EXPECT_EQ(got.output.floats()[0], 3);
  EXPECT_EQ(got.variance.floats()[0], 0);
  EXPECT_EQ(got.dx[0].floats()[0], 0);
}

TEST_F(BatchNormTest, KeepsItsDigitsWhereTheMeanIsLarge) {
  // A spread of 1 around 4096, where floats are 2^-11 apart: E[x²] - mean² would lose all
  // precision.
  OpCase c{.layer = "batch_norm {}", .input = {40, 40, 16}, .batch = 4};
  OpInputs inputs = RandomInputs(c);
  for (float& x : inputs.inputs[0]) x += 4096;
  const OpResult got = RunOp(*backend_, c, inputs);
  const auto expected =
      reference::Backward(LayerOf(c), c.batch, {ToDoubles(inputs.inputs[0])}, ToDoubles(inputs.dy),
                          {.weights = ToDoubles(inputs.weights), .bias = ToDoubles(inputs.bias)});
  EXPECT_LE(RelativeL2(got.mean.floats(), expected.mean), 1e-7);
  EXPECT_LE(RelativeL2(got.variance.floats(), expected.variance), 1e-6);
  EXPECT_LE(RelativeL2(got.dw.floats(), expected.weights), 1e-3);  // the error of the rounded mean
}

TEST_F(BatchNormTest, KeepsItsDigitsWhereTheFirstImagesAreUnlikeTheRest) {
  OpCase c{.layer = "batch_norm {}", .input = {32, 32, 8}, .batch = 16};
  OpInputs inputs = RandomInputs(c);
  auto& x = inputs.inputs[0];
  for (size_t i = 0; i < x.size(); ++i) x[i] = i < x.size() / 100 ? 0 : x[i] + 1000;
  const OpResult got = RunOp(*backend_, c, inputs);
  const auto expected =
      reference::Backward(LayerOf(c), c.batch, {ToDoubles(x)}, ToDoubles(inputs.dy),
                          {.weights = ToDoubles(inputs.weights), .bias = ToDoubles(inputs.bias)});
  EXPECT_LE(RelativeL2(got.variance.floats(), expected.variance), 1e-6);
}

TEST_F(BatchNormTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  const OpCase c{.layer = "batch_norm {}",
                 .input = {17, 13, 24},
                 .batch = 40,
                 .activation = Activation::kRelu,
                 .fuse_add = true};
  const OpInputs inputs = RandomInputs(c);
  const OpResult one = RunOp(*backend_, c, inputs);
  for (const int threads : {2, 3}) {
    const OpResult other = RunOp(*MakeTestBackend(threads), c, inputs);
    const auto same = [](const Arena& a, const Arena& b) {
      return std::equal(a.floats().begin(), a.floats().end(), b.floats().begin());
    };
    EXPECT_TRUE(same(one.output, other.output));
    EXPECT_TRUE(same(one.dw, other.dw) && same(one.db, other.db));
    EXPECT_TRUE(same(one.dx[0], other.dx[0]) && same(one.dx[1], other.dx[1]));
    EXPECT_TRUE(same(one.mean, other.mean) && same(one.variance, other.variance));
  }
}

TEST_F(BatchNormTest, NeverHidesAValueThatIsNotFinite) {
  for (const Activation activation : kActivations) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const OpCase c{
          .layer = "batch_norm {}", .input = {4, 4, 9}, .batch = 2, .activation = activation};
      OpInputs inputs = RandomInputs(c);
      inputs.inputs[0][9 + 4] = bad;
      const OpResult got = RunOp(*backend_, c, inputs);
      EXPECT_TRUE(std::isnan(got.output.floats()[4]));  // the same channel of another pixel
      EXPECT_TRUE(std::isfinite(got.output.floats()[5]));
      EXPECT_TRUE(std::isnan(got.mean.floats()[4]) || std::isinf(got.mean.floats()[4]));
    }
  }
}

}  // namespace
}  // namespace muster
