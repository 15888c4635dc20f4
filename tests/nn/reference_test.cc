// Is the oracle right? It is compared with PyTorch: both compute in double precision.
#include "tests/nn/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/nn/golden_file.h"
#include "tests/nn/op_case.h"

namespace muster::reference {
namespace {

// Of a tensor's largest value. The files are read as floats.
constexpr double kTolerance = 2e-7;

class ReferenceTest : public testing::TestWithParam<GoldenCase> {
 protected:
  // Empty if the case has no such tensor.
  Doubles Tensor(const std::string& name) const {
    return GetParam().Has(name) ? ToDoubles(GetParam().At(name)) : Doubles();
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
    std::vector<int32_t> labels;
    labels.reserve(c.At("labels").size());
    for (const float label : c.At("labels")) labels.push_back(static_cast<int32_t>(label));
    ExpectTensor("loss", {Loss(layer.spec, logits, labels)});
    ExpectTensor("input_gradient", LossGradient(layer.spec, logits, labels));
    return;
  }
  std::vector<Doubles> x(c.inputs.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = Tensor(c.InputName("input", i));
  const std::string weights = c.Has("scale") ? "scale" : "weights";
  const std::string bias = c.Has("shift") ? "shift" : "bias";
  const Context context{.weights = Tensor(weights),
                        .bias = Tensor(bias),
                        .running_mean = Tensor("running_mean"),
                        .running_variance = Tensor("running_variance"),
                        .training = c.mode == Mode::kTraining};
  ExpectTensor("output", Forward(layer, c.batch, x, context));
  if (!context.training) return;
  const Gradients g = Backward(layer, c.batch, x, Tensor("output_gradient"), context);
  for (size_t i = 0; i < x.size(); ++i) {
    ExpectTensor(c.InputName("input_gradient", i), g.inputs[i]);
  }
  ExpectTensor(weights + "_gradient", g.weights);
  ExpectTensor(bias + "_gradient", g.bias);
  ExpectTensor("mean_statistic", g.mean);
  ExpectTensor("variance_statistic", g.variance);
}

INSTANTIATE_TEST_SUITE_P(Layers, ReferenceTest, testing::ValuesIn(GoldenCases()));

// Layers that PyTorch has no values for. Each multiplies an element by a number that the element
// does not change, in both directions.
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
