// Is the oracle right? Its gradients against finite differences, in double precision.
#include "tests/nn/reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/op_case.h"

namespace muster::reference {
namespace {

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Compares `gradient` with the central differences of `f` along each of `at`'s coordinates.
template <typename F>
void ExpectGradient(Doubles& at, const Doubles& gradient, const F& f) {
  ASSERT_EQ(at.size(), gradient.size());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < at.size(); ++i) {
    const double value = at[i];
    at[i] = value + kStep;
    const double above = f();
    at[i] = value - kStep;
    const double below = f();
    at[i] = value;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-7) << i;
  }
}

struct LayerCase {
  const char* layer;
  std::vector<int64_t> other_channels = {};
};
// What gtest prints of a case.
void PrintTo(const LayerCase& c, std::ostream* out) { *out << c.layer; }

class ReferenceLayerTest : public testing::TestWithParam<LayerCase> {};

TEST_P(ReferenceLayerTest, GradientsAreThoseOfFiniteDifferences) {
  const OpCase c{.layer = GetParam().layer,
                 .input = {5, 4, 4},
                 .batch = 2,
                 .other_channels = GetParam().other_channels};
  const Layer layer = LayerOf(c);
  const OpInputs inputs = RandomInputs(c);
  std::vector<Doubles> x;
  for (const auto& input : inputs.inputs) x.push_back(ToDoubles(input));
  for (double& value : x[0]) value *= layer.kind == "relu6" ? 10 : 1;
  const Doubles dy = ToDoubles(inputs.dy);
  Context context{.seed = 3, .layer = 1, .sample_ids = {5, 6}, .epoch = 2};
  context.weights = ToDoubles(inputs.weights);
  context.bias = ToDoubles(inputs.bias);
  const Gradients gradients = Backward(layer, c.batch, x, dy, context);
  const auto value = [&] { return Dot(dy, Forward(layer, c.batch, x, context)); };
  for (size_t j = 0; j < x.size(); ++j) ExpectGradient(x[j], gradients.inputs[j], value);
  ExpectGradient(context.weights, gradients.weights, value);
  ExpectGradient(context.bias, gradients.bias, value);
}

INSTANTIATE_TEST_SUITE_P(
    Layers, ReferenceLayerTest,
    testing::Values(
        LayerCase{"conv2d { filters: 2 kernel: 3 padding: SAME }"},
        LayerCase{"conv2d { filters: 3 kernel: [2, 3] stride: [2, 1] padding: EXPLICIT pad: 1 }"},
        LayerCase{"conv2d { filters: 3 kernel: 2 use_bias: false }"},
        LayerCase{"conv2d { filters: 6 kernel: 2 groups: 2 }"},
        LayerCase{"conv2d { filters: 8 kernel: 3 stride: 2 padding: SAME groups: 4 }"},
        LayerCase{"dense { units: 4 }"}, LayerCase{"dense { units: 3 use_bias: false }"},
        LayerCase{"relu {}"}, LayerCase{"relu6 {}"}, LayerCase{"flatten {}"},
        LayerCase{"max_pool { kernel: 3 stride: 2 padding: SAME }"},
        LayerCase{"avg_pool { kernel: 3 stride: 2 padding: SAME }"},
        LayerCase{"avg_pool { kernel: 2 }"}, LayerCase{"global_avg_pool {}"},
        LayerCase{"lrn { depth_radius: 1 bias: 1.5 alpha: 0.7 beta: 0.75 }"},
        LayerCase{"lrn { depth_radius: 5 bias: 2 alpha: 1 beta: 0.5 }"},
        LayerCase{"batch_norm { epsilon: 0.01 }"}, LayerCase{"softmax {}"},
        LayerCase{"add {}", {4}}, LayerCase{"add {}", {4, 4}}, LayerCase{"concat {}", {1, 3}},
        LayerCase{"dropout { rate: 0.4 }"}));

class ReferenceLossTest : public testing::TestWithParam<LayerSpec> {};

TEST_P(ReferenceLossTest, GradientIsThatOfFiniteDifferences) {
  Doubles logits = ToDoubles(RandomFloats(16, 1));
  const std::vector<int32_t> labels = {0, 3, -1, 1};
  ExpectGradient(logits, LossGradient(GetParam(), logits, labels),
                 [&] { return Loss(GetParam(), logits, labels); });
}

INSTANTIATE_TEST_SUITE_P(Losses, ReferenceLossTest,
                         testing::Values(SoftmaxCrossEntropySpec{}, SoftmaxCrossEntropySpec{0.2f},
                                         MeanSquaredErrorSpec{}));

}  // namespace
}  // namespace muster::reference
