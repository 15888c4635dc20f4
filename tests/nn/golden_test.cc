// Compares every layer with PyTorch: outputs and gradients in files written by
// scripts/make_golden.py. Unlike the other tests of nn, the expected values are independent of
// Muster. This detects a formula that both the backend and the oracle get wrong.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "proto/config.pb.h"
#include "tests/nn/golden_file.h"
#include "tests/nn/test_backend.h"

namespace muster {
namespace {

// Relative to the tensor's largest value. Single precision has 6e-8; sums of a few hundred products
// and the roots and powers of normalisations lose up to ten times that.
constexpr double kTolerance = 1e-5;

void ExpectNear(const std::string& what, std::span<const float> got,
                const std::vector<float>& expected, double factor = 1) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(factor * value));
  for (size_t i = 0; i < expected.size(); ++i) {
    // Unlike EXPECT_NEAR, this fails for NaN.
    ASSERT_TRUE(std::abs(got[i] - factor * expected[i]) <= kTolerance * largest)
        << fmt::format("{}[{}]: expected {:.9g}, got {:.9g}; the largest is {:.9g}", what, i,
                       factor * expected[i], got[i], largest);
  }
}

Arena Filled(const std::vector<float>& values) {
  Arena arena(values.size());
  std::copy(values.begin(), values.end(), arena.floats().begin());
  return arena;
}

// Garbage reveals data that an op forgets to write or reads too early.
Arena Garbage(size_t floats) {
  Arena arena(floats);
  for (float& f : arena.floats()) f = std::numeric_limits<float>::quiet_NaN();
  return arena;
}

class GoldenRun {
 public:
  GoldenRun(const GoldenCase& c, int threads)
      : case_(c), backend_(MakeTestBackend(threads)), layer_(c.MakeLayer()) {
    backend_->Enter();
  }

  void CheckLoss() {
    const auto loss = backend_->MakeLoss(layer_, {.batch = case_.batch});
    std::vector<int32_t> labels;
    for (const float label : case_.At("labels")) labels.push_back(static_cast<int32_t>(label));
    const Arena logits = Filled(case_.At("input"));
    Arena state = Garbage(loss->state_bytes() / sizeof(float)),
          gradient = Garbage(logits.floats().size());
    std::vector<int32_t> predictions(labels.size(), -7);
    const LossArgs args{
        .logits = logits.floats().data(), .labels = labels.data(), .state = state.floats().data()};
    LossSums sums;
    loss->Forward(args, &sums, predictions.data());
    const double expected = case_.At("loss")[0];
    EXPECT_NEAR(sums.loss, expected, kTolerance * std::abs(expected));
    EXPECT_EQ(sums.correct, static_cast<int64_t>(case_.At("correct")[0]));
    EXPECT_EQ(sums.metrics[kTop5], static_cast<int64_t>(case_.At("correct_top5")[0]));
    int64_t predicted = 0;
    for (size_t i = 0; i < labels.size(); ++i) predicted += predictions[i] == labels[i];
    EXPECT_EQ(predicted, sums.correct);
    constexpr float kScale = 0.375f;
    loss->Backward(args, kScale, gradient.floats().data());
    ExpectNear("input_gradient", gradient.floats(), case_.At("input_gradient"), kScale);
  }

  void CheckOp() {
    op_ = backend_->MakeOp(layer_, {.batch = case_.batch, .mode = case_.mode});
    Forward();
    if (case_.mode == Mode::kInference) return;
    if (layer_.kind == "relu") return CheckReluGradient();
    if (layer_.kind == "add") return CheckAddGradient();
    Backward();
  }

 private:
  // For batch_norm, an op's weights and bias are scale and shift.
  std::string Weights() const { return case_.Has("scale") ? "scale" : "weights"; }
  std::string Bias() const { return case_.Has("shift") ? "shift" : "bias"; }

  // Returns null if the case has no such tensor.
  const float* Given(const std::string& name) {
    if (!case_.Has(name)) return nullptr;
    given_.push_back(Filled(case_.At(name)));
    return given_.back().floats().data();
  }

  void Forward() {
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      inputs_.push_back(Given(case_.InputName("input", i)));
    }
    weights_ = Given(Weights());
    bias_ = Given(Bias());
    output_ = Garbage(case_.At("output").size());
    state_ = Garbage(op_->state_bytes() / sizeof(float));
    Arena scratch = Garbage(op_->scratch_bytes() / sizeof(float));
    op_->Forward({.input = inputs_[0],
                  .inputs = inputs_,
                  .output = output_.floats().data(),
                  .weights = weights_,
                  .bias = bias_,
                  .running_mean = Given("running_mean"),
                  .running_variance = Given("running_variance"),
                  .weights_version = 1,
                  .state = state_.floats().data(),
                  .scratch = scratch.floats().data()});
    ExpectNear("output", output_.floats(), case_.At("output"));
  }

  void Backward() {
    constexpr float kStatisticWeight = 0.25f;
    const bool statistics = case_.Has("mean_statistic");
    std::vector<Arena> input_gradients;
    std::vector<void*> pointers;
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      const auto& expected = case_.At(case_.InputName("input_gradient", i));
      input_gradients.push_back(Garbage(expected.size()));
      pointers.push_back(input_gradients.back().floats().data());
    }
    Arena weights_gradient = Garbage(weights_ != nullptr ? case_.At(Weights()).size() : 0);
    Arena bias_gradient = Garbage(bias_ != nullptr ? case_.At(Bias()).size() : 0);
    const size_t channels = statistics ? case_.At("mean_statistic").size() : 0;
    Arena mean = Garbage(channels), variance = Garbage(channels);
    Arena scratch = Garbage(op_->scratch_bytes() / sizeof(float));
    op_->Backward({.input = inputs_[0],
                   .output = output_.floats().data(),
                   .output_gradient = Given("output_gradient"),
                   .input_gradient = pointers[0],
                   .input_gradients = pointers,
                   .weights = weights_,
                   .bias = bias_,
                   .weights_version = 1,
                   .weights_gradient = weights_gradient.floats().data(),
                   .bias_gradient = bias_gradient.floats().data(),
                   .mean_statistic = mean.floats().data(),
                   .variance_statistic = variance.floats().data(),
                   .statistic_weight = kStatisticWeight,
                   .state = state_.floats().data(),
                   .scratch = scratch.floats().data()});
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      const std::string name = case_.InputName("input_gradient", i);
      ExpectNear(name, input_gradients[i].floats(), case_.At(name));
    }
    if (weights_ != nullptr) {
      ExpectNear("weights or scale gradient", weights_gradient.floats(),
                 case_.At(Weights() + "_gradient"));
    }
    if (bias_ != nullptr) {
      ExpectNear("bias or shift gradient", bias_gradient.floats(), case_.At(Bias() + "_gradient"));
    }
    if (statistics) {
      ExpectNear("mean", mean.floats(), case_.At("mean_statistic"), kStatisticWeight);
      ExpectNear("variance", variance.floats(), case_.At("variance_statistic"), kStatisticWeight);
    }
  }

  // The derivative of relu is applied when the gradient of its output is summed.
  void CheckReluGradient() {
    Arena gradient = Garbage(output_.floats().size());
    backend_->AddGradients(gradient.floats().data(), Given("output_gradient"), nullptr,
                           output_.floats().data(), static_cast<int64_t>(gradient.floats().size()));
    ExpectNear("input_gradient", gradient.floats(), case_.At("input_gradient"));
  }

  // A sum has no backward op: its gradient is that of each summand.
  void CheckAddGradient() {
    for (size_t i = 0; i < case_.inputs.size(); ++i) {
      EXPECT_EQ(case_.At(case_.InputName("input_gradient", i)), case_.At("output_gradient"));
    }
  }

  const GoldenCase& case_;
  const std::unique_ptr<Backend> backend_;
  const Layer layer_;
  std::unique_ptr<Op> op_;
  std::vector<Arena> given_;
  std::vector<const void*> inputs_;
  const float *weights_ = nullptr, *bias_ = nullptr;
  Arena output_, state_;
};

class Golden : public testing::TestWithParam<GoldenCase> {};

TEST_P(Golden, AgreesWithPyTorch) {
  for (const int threads : TestThreads()) {
    SCOPED_TRACE(fmt::format("{}, {}: {}, {} threads", GetParam().file, GetParam().name,
                             GetParam().settings, threads));
    GoldenRun run(GetParam(), threads);
    GetParam().Has("labels") ? run.CheckLoss() : run.CheckOp();
  }
}

// conv2d_0, conv2d_1, … in file order.
std::string TestName(const testing::TestParamInfo<GoldenCase>& info) {
  const std::string kind = info.param.file.substr(0, info.param.file.find('.'));
  const auto first = std::ranges::find(GoldenCases(), info.param.file, &GoldenCase::file);
  return fmt::format("{}_{}", kind,
                     info.index - static_cast<size_t>(first - GoldenCases().begin()));
}

INSTANTIATE_TEST_SUITE_P(Layers, Golden, testing::ValuesIn(GoldenCases()), TestName);

// A new kind of layer in the config needs golden values. Flatten moves nothing, and the mask of
// dropout is specific to Muster.
TEST(GoldenFiles, CoverEveryLayerOfTheConfig) {
  std::set<std::string> covered;
  for (const GoldenCase& c : GoldenCases()) covered.insert(c.file.substr(0, c.file.find('.')));
  const auto* const kinds = config::Layer::descriptor()->FindOneofByName("kind");
  std::set<std::string> expected;
  for (int i = 0; i < kinds->field_count(); ++i) expected.insert(kinds->field(i)->name());
  expected.erase("flatten");
  expected.erase("dropout");
  EXPECT_EQ(covered, expected);
}

}  // namespace
}  // namespace muster
