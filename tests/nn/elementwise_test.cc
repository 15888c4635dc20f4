// Sums, concatenation, elementwise functions, softmax, and sums of gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/golden_file.h"
#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ElementwiseTest : public testing::Test {
 protected:
  std::vector<float> OutputOf(const std::string& layer, const std::vector<float>& x,
                              Activation activation = Activation::kNone) {
    const OpCase c{
        .layer = layer, .input = {1, 1, static_cast<int64_t>(x.size())}, .activation = activation};
    const OpResult r = RunOp(*backend_, c, {.inputs = {x}, .dy = std::vector<float>(x.size())});
    return {r.output.floats().begin(), r.output.floats().end()};
  }
  std::unique_ptr<Backend> backend_ = MakeTestBackend(1);
};

TEST_F(ElementwiseTest, MatchesTheReferenceWithTwoThreads) {
  const auto backend = MakeTestBackend(2);
  const Shape input{30, 31, 15};
  ExpectMatchesReference(*backend, {.layer = "add {}",
                                    .input = input,
                                    .batch = 3,
                                    .activation = Activation::kRelu,
                                    .other_channels = {15, 15}});
  ExpectMatchesReference(
      *backend, {.layer = "concat {}", .input = input, .batch = 3, .other_channels = {1, 16}});
  for (const char* layer :
       {"relu {}", "relu6 {}", "gelu {}", "tanh {}", "softmax {}", "global_avg_pool {}"}) {
    ExpectMatchesReference(*backend, {.layer = layer, .input = input, .batch = 3});
  }
}

TEST_F(ElementwiseTest, AddMatchesTheReference) {
  for (const int64_t channels : {1, 7, 16, 100}) {
    for (const size_t others : {1, 2, 4}) {
      for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
        ExpectMatchesReference(*backend_,
                               {.layer = "add {}",
                                .input = {9, 7, channels},
                                .batch = 3,
                                .activation = activation,
                                .other_channels = std::vector<int64_t>(others, channels)});
      }
    }
  }
}

TEST_F(ElementwiseTest, ConcatMatchesTheReference) {
  for (const bool first : {false, true}) {
    for (const bool others : {false, true}) {
      ExpectMatchesReference(*backend_, {.layer = "concat {}",
                                         .input = {5, 3, 7},
                                         .batch = 4,
                                         .input_gradient = first,
                                         .other_channels = {1, 16},
                                         .other_gradients = others});
      ExpectMatchesReference(*backend_, {.layer = "concat {}",
                                         .input = {1, 1, 3},
                                         .batch = 2,
                                         .input_gradient = first,
                                         .other_channels = {3},
                                         .other_gradients = others});
    }
  }
}

TEST_F(ElementwiseTest, FunctionsOfAnElementMatchTheReferenceAndLetNanThrough) {
  for (const GoldenCase& golden : GoldenCases()) {
    const Layer layer = golden.MakeLayer();
    if (!std::visit([]<typename Spec>(const Spec&) { return ElementwiseSpec<Spec>; }, layer.spec)) {
      continue;
    }
    for (const bool in_place : {false, layer.traits().gradient_in_place}) {
      const OpCase c{
          .layer = golden.settings, .input = {9, 5, 113}, .batch = 3, .in_place = in_place};
      OpInputs inputs = RandomInputs(c);
      for (float& x : inputs.inputs[0]) x *= 12;
      inputs.inputs[0][0] = 0;  // the kinks of relu6
      inputs.inputs[0][1] = 6;
      ExpectMatchesReference(*backend_, c, inputs);
    }
    EXPECT_TRUE(std::isnan(OutputOf(golden.settings, {kNan})[0])) << golden.settings;
  }
}

// Extreme arguments neither overflow nor give NaN, forward and back.
TEST_F(ElementwiseTest, SmoothFunctionsReachTheirLimits) {
  const float huge = 3e38f;
  const auto expect = [&](const std::string& layer, const std::vector<float>& values,
                          const std::vector<float>& slopes) {
    const OpCase c{.layer = layer, .input = {1, 1, 2}};
    const OpResult r = RunOp(*backend_, c, {.inputs = {{-huge, huge}}, .dy = {1, 1}});
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(r.output.floats()[i], values[i]) << layer;
      EXPECT_EQ(r.dx[0].floats()[i], slopes[i]) << layer;
    }
  };
  for (const char* const layer : {"gelu {}", "gelu { approximate: TANH }", "silu {}"}) {
    expect(layer, {0, huge}, {0, 1});
  }
  expect("sigmoid {}", {0, 1}, {0, 0});
  expect("tanh {}", {-1, 1}, {0, 0});
  expect("leaky_relu { slope: 0.25 }", {-0.25f * huge, huge}, {0.25f, 1});
}

TEST_F(ElementwiseTest, Relu6IsFiniteForInfinity) {
  EXPECT_EQ(OutputOf("relu6 {}", {kInfinity, -kInfinity, 3}), (std::vector<float>{6, 0, 3}));
}

TEST_F(ElementwiseTest, SoftmaxMatchesTheReference) {
  for (const int64_t channels : {1, 2, 10, 1000}) {
    for (const bool in_place : {false, true}) {
      ExpectMatchesReference(
          *backend_,
          {.layer = "softmax {}", .input = {3, 2, channels}, .batch = 2, .in_place = in_place});
    }
  }
}

TEST_F(ElementwiseTest, SoftmaxIsStableForExtremeValues) {
  EXPECT_EQ(OutputOf("softmax {}", {1e30f, 0, -1e30f}), (std::vector<float>{1, 0, 0}));
  EXPECT_EQ(OutputOf("softmax {}", {-5000, -5000}), (std::vector<float>{0.5f, 0.5f}));
}

TEST_F(ElementwiseTest, SoftmaxNeverHidesAValueThatIsNotFinite) {
  for (const float bad : {kNan, kInfinity}) {
    for (size_t at = 0; at < 3; ++at) {
      std::vector<float> x = {1, 2, 3};
      x[at] = bad;
      float sum = 0;
      for (const float y : OutputOf("softmax {}", x)) sum += y;
      EXPECT_TRUE(std::isnan(sum)) << bad << " at " << at;
    }
  }
}

TEST_F(ElementwiseTest, ReflectPadMatchesTheReference) {
  for (const int64_t channels : {1, 5, 16}) {
    for (const char* const pad : {"0", "1", "[2, 0]", "[3, 4]"}) {  // at most 3 rows and 4 columns
      const std::string layer = std::string("reflect_pad { pad: ") + pad + " }";
      ExpectMatchesReference(*backend_, {.layer = layer, .input = {4, 5, channels}, .batch = 3});
    }
  }
  ExpectMatchesReference(*MakeTestBackend(2),
                         {.layer = "reflect_pad { pad: 2 }", .input = {9, 11, 7}, .batch = 3});
}

TEST_F(ElementwiseTest, GlobalAvgPoolMatchesTheReference) {
  for (const int64_t channels : {1, 5, 16, 130}) {
    for (const int64_t size : {1, 2, 7}) {
      ExpectMatchesReference(
          *backend_,
          {.layer = "global_avg_pool {}", .input = {size, 8 - size, channels}, .batch = 5});
    }
  }
}

TEST_F(ElementwiseTest, AddsGradientsUnderAMask) {
  const std::vector<float> a = {1, 2, 3, kNan}, b = {10, 20, 30, 40}, relu = {0, 1, -1, 0};
  const auto add = [&](const float* second, const float* mask, int in_place) {
    std::vector<float> buffers[2] = {a, b}, apart(4);
    float* const to = in_place < 0 ? apart.data() : buffers[in_place].data();
    backend_->AddGradients(to, buffers[0].data(), second ? buffers[1].data() : nullptr, mask, 4);
    return std::vector<float>(to, to + 3);
  };
  for (const int in_place : {-1, 0, 1}) {
    EXPECT_EQ(add(b.data(), nullptr, in_place), (std::vector<float>{11, 22, 33}));
    EXPECT_EQ(add(b.data(), relu.data(), in_place), (std::vector<float>{0, 22, 0}));
    if (in_place == 1) continue;
    EXPECT_EQ(add(nullptr, nullptr, in_place), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(add(nullptr, relu.data(), in_place), (std::vector<float>{0, 2, 0}));
  }
}

}  // namespace
}  // namespace muster
