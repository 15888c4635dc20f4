// group_norm and layer_norm. golden_test.cc has PyTorch's values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

bool SameBits(const Arena& a, const Arena& b) {
  return std::equal(a.floats().begin(), a.floats().end(), b.floats().begin(), b.floats().end());
}

class GroupNormTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = MakeTestBackend(1);
};

TEST_F(GroupNormTest, MatchesTheReference) {
  for (const char* const layer :
       {"group_norm { groups: 1 }", "group_norm { groups: 4 epsilon: 0.01 }",
        "group_norm { groups: 12 }", "layer_norm {}", "layer_norm { epsilon: 0.1 }"}) {
    for (const Shape& input : {Shape{5, 4, 12}, Shape{1, 1, 24}, Shape{23, 31, 12}}) {
      for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
        for (const bool in_place : {false, true}) {
          ExpectMatchesReference(*backend_, {.layer = layer,
                                             .input = input,
                                             .batch = 3,
                                             .activation = activation,
                                             .tolerance = 4e-6,
                                             .in_place = in_place});
        }
      }
    }
  }
}

// A GPU sums a group of more than 2048 values with a block. The software GPU runs 16 blocks at
// once.
TEST_F(GroupNormTest, MatchesTheReferenceForManyLargeGroups) {
  ExpectMatchesReference(
      *backend_,
      {.layer = "group_norm { groups: 12 }", .input = {46, 45, 12}, .batch = 2, .tolerance = 4e-6});
}

TEST_F(GroupNormTest, GivesGradientsOfVariablesAlone) {
  for (const char* const layer : {"group_norm { groups: 2 }", "layer_norm {}"}) {
    ExpectMatchesReference(
        *backend_, {.layer = layer, .input = {3, 5, 6}, .batch = 2, .input_gradient = false});
  }
}

TEST_F(GroupNormTest, IsTheSameInInference) {
  for (const char* const layer : {"group_norm { groups: 2 }", "layer_norm {}"}) {
    OpCase c{.layer = layer, .input = {3, 5, 6}, .batch = 2};
    const OpInputs inputs = RandomInputs(c);
    const OpResult training = RunOp(*backend_, c, inputs);
    c.mode = Mode::kInference;
    EXPECT_TRUE(SameBits(training.output, RunOp(*backend_, c, inputs).output));
  }
}

// The mean of the numbers is a thousand times their deviation.
TEST_F(GroupNormTest, IsAccurateFarFromZero) {
  for (const char* const layer : {"group_norm { groups: 2 }", "layer_norm {}"}) {
    const OpCase c{.layer = layer, .input = {16, 16, 8}, .batch = 2, .tolerance = 1e-4};
    OpInputs inputs = RandomInputs(c);
    for (float& x : inputs.inputs[0]) x += 500;
    ExpectMatchesReference(*backend_, c, inputs);
  }
}

TEST_F(GroupNormTest, OfEqualNumbersIsTheShift) {
  const OpCase c{.layer = "group_norm { groups: 1 }", .input = {2, 2, 2}};
  const OpInputs inputs{.inputs = {std::vector<float>(8, 3)},
                        .dy = std::vector<float>(8, 1),
                        .weights = {5, 6},
                        .bias = {0.25f, -2}};
  const OpResult got = RunOp(*backend_, c, inputs);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(got.output.floats()[i], i % 2 == 0 ? 0.25f : -2);
}

// A sample is independent of the others, so its bits do not depend on the batch or its slices.
TEST_F(GroupNormTest, GivesTheSameBitsInAnyBatchAndOnAnyNumberOfThreads) {
  for (const char* const layer : {"group_norm { groups: 3 }", "layer_norm {}"}) {
    const OpCase all{.layer = layer, .input = {7, 9, 21}, .batch = 70};
    const OpInputs inputs = RandomInputs(all);
    const OpResult one = RunOp(*backend_, all, inputs);
    const OpResult two = RunOp(*MakeTestBackend(2), all, inputs);
    EXPECT_TRUE(SameBits(one.output, two.output) && SameBits(one.dx[0], two.dx[0]));
    EXPECT_TRUE(SameBits(one.dw, two.dw) && SameBits(one.db, two.db));
    OpCase alone = all;
    alone.batch = 1;
    const auto size = static_cast<std::ptrdiff_t>(all.input.elements());
    for (const std::ptrdiff_t sample : {0, 41, 69}) {
      OpInputs own = inputs;
      const auto cut = [&](std::vector<float>& values) {
        const std::vector<float> part(values.begin() + sample * size,
                                      values.begin() + (sample + 1) * size);
        values = part;
      };
      cut(own.inputs[0]);
      cut(own.dy);
      const OpResult got = RunOp(*backend_, alone, own);
      const auto from = static_cast<size_t>(sample * size);
      EXPECT_TRUE(std::ranges::equal(
          got.output.floats(), one.output.floats().subspan(from, got.output.floats().size())));
      EXPECT_TRUE(std::ranges::equal(got.dx[0].floats(),
                                     one.dx[0].floats().subspan(from, got.dx[0].floats().size())));
    }
  }
}

TEST_F(GroupNormTest, NeverHidesAValueThatIsNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
      const OpCase c{.layer = "group_norm { groups: 2 }",
                     .input = {4, 4, 6},
                     .batch = 2,
                     .activation = activation};
      OpInputs inputs = RandomInputs(c);
      inputs.inputs[0][6 + 4] = bad;
      const OpResult got = RunOp(*backend_, c, inputs);
      EXPECT_TRUE(std::isnan(got.output.floats()[3]));  // the same group of another pixel
      EXPECT_TRUE(std::isfinite(got.output.floats()[2]));
      EXPECT_TRUE(std::isfinite(got.output.floats()[4 * 4 * 6 + 3]));  // the other sample
    }
  }
}

}  // namespace
}  // namespace muster
