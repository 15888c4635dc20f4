// Verifies the oracle against PyTorch, and its gradients against finite differences, all in double
// precision.
#include "tests/nn/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/nn/golden_file.h"
#include "tests/nn/op_case.h"

namespace muster::reference {
namespace {

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Changes each value slightly and differently, because a maximum has no derivative at ties.
Doubles WithoutTies(Doubles values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] += 1e-3 * std::fmod(0.6180339887 * static_cast<double>(i + 1), 1.0);
  }
  return values;
}

// Compares `gradient` with the central differences of `f` in each coordinate of `at`.
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

// Relative to a tensor's largest value. The files are read as floats.
constexpr double kTolerance = 2e-7;

class ReferenceTest : public testing::TestWithParam<GoldenCase> {
 protected:
  // Empty if the case has no such tensor.
  Doubles Tensor(const std::string& name) const {
    return GetParam().Has(name) ? ToDoubles(GetParam().At(name)) : Doubles();
  }

  std::vector<int32_t> Labels() const {
    std::vector<int32_t> labels;
    labels.reserve(GetParam().At("labels").size());
    for (const float label : GetParam().At("labels")) labels.push_back(static_cast<int32_t>(label));
    return labels;
  }
  std::vector<Doubles> Inputs() const {
    std::vector<Doubles> inputs(GetParam().inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = Tensor(GetParam().InputName("input", i));
    return inputs;
  }
  std::string WeightsName() const { return GetParam().Has("scale") ? "scale" : "weights"; }
  std::string BiasName() const { return GetParam().Has("shift") ? "shift" : "bias"; }
  Context MakeContext() const {
    return {.weights = Tensor(WeightsName()),
            .bias = Tensor(BiasName()),
            .running_mean = Tensor("running_mean"),
            .running_variance = Tensor("running_variance"),
            .training = GetParam().mode == Mode::kTraining};
  }

  void ExpectTensor(const std::string& name, const Doubles& got) const {
    const Doubles expected = Tensor(name);
    ASSERT_EQ(got.size(), expected.size()) << name;
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], expected[i], kTolerance * largest) << name << ", " << i;
    }
  }
};

TEST_P(ReferenceTest, AgreesWithPyTorch) {
  const GoldenCase& c = GetParam();
  const Layer layer = c.MakeLayer();
  if (c.Has("labels")) {
    const Doubles logits = Tensor("input");
    ExpectTensor("loss", {Loss(layer.spec, logits, Labels())});
    ExpectTensor("input_gradient", LossGradient(layer.spec, logits, Labels()));
    return;
  }
  const std::vector<Doubles> x = Inputs();
  const Context context = MakeContext();
  ExpectTensor("output", Forward(layer, c.batch, x, context));
  if (!context.training) return;
  const Gradients g = Backward(layer, c.batch, x, Tensor("output_gradient"), context);
  for (size_t i = 0; i < x.size(); ++i) {
    ExpectTensor(c.InputName("input_gradient", i), g.inputs[i]);
  }
  ExpectTensor(WeightsName() + "_gradient", g.weights);
  ExpectTensor(BiasName() + "_gradient", g.bias);
  ExpectTensor("mean_statistic", g.mean);
  ExpectTensor("variance_statistic", g.variance);
}

TEST_P(ReferenceTest, GradientsAreThoseOfFiniteDifferences) {
  const GoldenCase& c = GetParam();
  const Layer layer = c.MakeLayer();
  if (c.Has("labels")) {
    Doubles logits = Tensor("input");
    ExpectGradient(logits, LossGradient(layer.spec, logits, Labels()),
                   [&] { return Loss(layer.spec, logits, Labels()); });
    return;
  }
  std::vector<Doubles> x = Inputs();
  for (Doubles& input : x) input = WithoutTies(std::move(input));
  Context context = MakeContext();
  if (!context.training) return;  // has no gradient
  const Doubles dy = Tensor("output_gradient");
  const Gradients g = Backward(layer, c.batch, x, dy, context);
  const auto value = [&] { return Dot(dy, Forward(layer, c.batch, x, context)); };
  for (size_t i = 0; i < x.size(); ++i) ExpectGradient(x[i], g.inputs[i], value);
  ExpectGradient(context.weights, g.weights, value);
  ExpectGradient(context.bias, g.bias, value);
}

INSTANTIATE_TEST_SUITE_P(Layers, ReferenceTest, testing::ValuesIn(GoldenCases()));

// Layers without PyTorch values. Each multiplies an element by a factor that is independent of the
// element, in both directions.
TEST(ReferenceTest, GradientsOfLinearLayersHaveTheFactorsOfTheirOutputs) {
  const Context context{.seed = 3, .layer = 1, .sample_ids = {5, 6}, .epoch = 2};
  for (const char* const text : {"dropout { rate: 0.4 }", "flatten {}"}) {
    const Shape shape{5, 4, 4};
    const Layer layer = MakeLayer(text, shape);
    const Doubles x = ToDoubles(RandomFloats(2 * shape.elements(), 1));
    EXPECT_EQ(Backward(layer, 2, {x}, x, context).inputs[0], Forward(layer, 2, {x}, context))
        << text;
  }
}

}  // namespace
}  // namespace muster::reference
