#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

struct DropoutRun {
  std::vector<float> y, dx;
};

DropoutRun RunDropout(float rate, const Shape& shape, const std::vector<float>& values,
                      const std::vector<int64_t>& ids, int64_t epoch,
                      OpOptions options = {.seed = 7}, int threads = 1) {
  const auto backend = MakeTestBackend(threads);
  const Layer layer = reference::MakeLayer(fmt::format("dropout {{ rate: {} }}", rate), shape);
  options.batch = static_cast<int64_t>(ids.size());
  const auto op = backend->MakeOp(layer, options);
  Arena y = ToArena(values), dx = ToArena(values), state(op->state_bytes() / sizeof(float));
  op->Forward({.input = y.floats().data(),
               .output = y.floats().data(),
               .state = state.floats().data(),
               .sample_ids = ids.data(),
               .epoch = epoch});
  op->Backward({.output = y.floats().data(),
                .output_gradient = dx.floats().data(),
                .input_gradient = dx.floats().data(),
                .state = state.floats().data()});
  return {{y.floats().begin(), y.floats().end()}, {dx.floats().begin(), dx.floats().end()}};
}

// With samples of odd sizes, whose batch is or is not a multiple of four.
TEST(DropoutTest, MatchesTheReference) {
  for (const std::vector<int64_t>& ids :
       {std::vector<int64_t>{17, 4, int64_t{1} << 40}, {5, 6}, {9, 0, 2, 3}}) {
    for (const int64_t channels : {1, 3, 4, 7, 64}) {
      const Shape shape{2, 3, channels};
      const auto batch = static_cast<int64_t>(ids.size());
      const Layer layer = reference::MakeLayer("dropout { rate: 0.3 }", shape);
      const auto x = RandomFloats(batch * shape.elements(), 1);
      const auto got = RunDropout(0.3f, shape, x, ids, 9, {.seed = 7, .layer = 5});
      reference::Context context{.seed = 7, .layer = 5, .sample_ids = ids, .epoch = 9};
      const auto y = reference::Forward(layer, batch, {ToDoubles(x)}, context);
      EXPECT_LE(RelativeL2(got.y, y), 1e-6);
      EXPECT_LE(RelativeL2(got.dx, y), 1e-6);  // the same factors, because the gradient was x too
    }
  }
}

TEST(DropoutTest, DependsOnSampleEpochLayerAndSeedButNotOnTheBatch) {
  const Shape shape{1, 1, 256};
  const std::vector<float> one(256, 1), two(512, 1);
  const auto alone = RunDropout(0.5f, shape, one, {3}, 0).y;
  const auto pair = RunDropout(0.5f, shape, two, {8, 3}, 0, {.seed = 7}, 2).y;
  EXPECT_EQ(alone, std::vector<float>(pair.begin() + 256, pair.end()));
  EXPECT_EQ(alone, RunDropout(0.5f, shape, one, {3}, 0).y);
  EXPECT_NE(alone, RunDropout(0.5f, shape, one, {4}, 0).y);
  EXPECT_NE(alone, RunDropout(0.5f, shape, one, {3}, 1).y);
  EXPECT_NE(alone, RunDropout(0.5f, shape, one, {3}, 0, {.seed = 8}).y);
  EXPECT_NE(alone, RunDropout(0.5f, shape, one, {3}, 0, {.seed = 7, .layer = 1}).y);
}

TEST(DropoutTest, KeepsTheMean) {
  const Shape shape{1, 1, 100000};
  for (const float rate : {0.0f, 0.1f, 0.5f, 0.75f}) {
    const auto y = RunDropout(rate, shape, std::vector<float>(100000, 1), {1}, 0).y;
    double sum = 0;
    for (const float value : y) {
      sum += value;
      EXPECT_TRUE(value == 0 || std::abs(value - 1 / (1 - rate)) < 1e-6);
    }
    // Four standard deviations.
    EXPECT_NEAR(sum / 100000, 1, 4 * std::sqrt(rate / (1 - rate) / 100000) + 1e-6);
  }
}

TEST(DropoutTest, AppliesTheReluBefore) {
  const Shape shape{1, 1, 64};
  std::vector<float> x = RandomFloats(64, 1);
  for (float& value : x) value = std::max(0.0f, value);
  const auto run = RunDropout(0.5f, shape, x, {1}, 0, {.input_is_relu = true, .seed = 7});
  // The gradient was x, which is zero where relu is zero, so it must stay zero there.
  EXPECT_EQ(run.dx, run.y);
}

TEST(ReluTest, IsTheMaximumWithZeroAndLetsNanThrough) {
  const auto backend = MakeTestBackend(1);
  const Layer layer = reference::MakeLayer("relu {}", {1, 1, 5});
  const auto op = backend->MakeOp(layer, {.batch = 1});
  Arena x = ToArena({-1, 0, 2, NAN, -INFINITY});
  op->Forward({.input = x.floats().data(), .output = x.floats().data()});
  EXPECT_EQ(x.floats()[0], 0);
  EXPECT_EQ(x.floats()[1], 0);
  EXPECT_EQ(x.floats()[2], 2);
  EXPECT_TRUE(std::isnan(x.floats()[3]));
  EXPECT_EQ(x.floats()[4], 0);
}

}  // namespace
}  // namespace muster
