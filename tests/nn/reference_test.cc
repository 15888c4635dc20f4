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

class ReferenceLayerTest : public testing::TestWithParam<const char*> {};

TEST_P(ReferenceLayerTest, GradientsAreThoseOfFiniteDifferences) {
  const Shape input{5, 4, 3};
  const Layer layer = MakeLayer(GetParam(), input);
  constexpr int64_t kBatch = 2;
  Doubles x = ToDoubles(RandomFloats(kBatch * input.elements(), 1));
  const Doubles dy = ToDoubles(RandomFloats(kBatch * layer.output_shape.elements(), 2));
  Context context{.seed = 3, .layer = 1, .sample_ids = {5, 6}, .epoch = 2};
  if (const auto* conv = std::get_if<Conv2dSpec>(&layer.spec)) {
    const int64_t area = conv->kernel_height * conv->kernel_width;
    context.weights = ToDoubles(RandomFloats(conv->filters * area * input.channels, 3));
    if (conv->use_bias) context.bias = ToDoubles(RandomFloats(conv->filters, 4));
  } else if (const auto* dense = std::get_if<DenseSpec>(&layer.spec)) {
    context.weights = ToDoubles(RandomFloats(dense->units * input.elements(), 3));
    if (dense->use_bias) context.bias = ToDoubles(RandomFloats(dense->units, 4));
  }
  const Gradients gradients = Backward(layer, kBatch, x, dy, context);
  const auto value = [&] { return Dot(dy, Forward(layer, kBatch, x, context)); };
  ExpectGradient(x, gradients.input, value);
  ExpectGradient(context.weights, gradients.weights, value);
  ExpectGradient(context.bias, gradients.bias, value);
}

INSTANTIATE_TEST_SUITE_P(
    Layers, ReferenceLayerTest,
    testing::Values("conv2d { filters: 2 kernel: 3 padding: SAME }",
                    "conv2d { filters: 3 kernel: [2, 3] stride: [2, 1] padding: EXPLICIT pad: 1 }",
                    "conv2d { filters: 3 kernel: 2 use_bias: false }", "dense { units: 4 }",
                    "dense { units: 3 use_bias: false }", "relu {}",
                    "max_pool { kernel: 3 stride: 2 padding: SAME }",
                    "avg_pool { kernel: 3 stride: 2 padding: SAME }", "avg_pool { kernel: 2 }",
                    "lrn { depth_radius: 1 bias: 1.5 alpha: 0.7 beta: 0.75 }",
                    "lrn { depth_radius: 5 bias: 2 alpha: 1 beta: 0.5 }",
                    "dropout { rate: 0.4 }"));

TEST(ReferenceLossTest, GradientIsThatOfFiniteDifferences) {
  Doubles logits = ToDoubles(RandomFloats(12, 1));
  const std::vector<int32_t> labels = {0, 3, 1};
  ExpectGradient(logits, LossGradient(logits, labels), [&] { return Loss(logits, labels); });
}

}  // namespace
}  // namespace muster::reference
