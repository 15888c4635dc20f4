// All data of W(v) stays intact until the first update of the next step.
#include "ps/update/variables.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <optional>

#include "common/base/error.h"
#include "ps/update/aggregator.h"
#include "ps/update/choose_kernels.h"

namespace muster {
namespace {

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

Variable Weights(const char* name, size_t offset, size_t count) {
  return {.name = name,
          .layer = 0,
          .shape = {static_cast<int64_t>(count)},
          .offset = offset,
          .count = count,
          .fan_in = 1,
          .fan_out = 1,
          .initializer = {.kind = Initializer::Kind::kTruncatedNormal, .stddev = 1}};
}

// One worker, one slice, one chunk.
class VariablesTest : public ::testing::Test {
 protected:
  void Make(const std::string& optimizer, bool may_skip = false, bool keep_previous = true) {
    settings_.Clear();
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(optimizer, &settings_));
    variables_.emplace(
        layout_,
        VariablesOptions{.state_arenas = static_cast<size_t>(TraitsOf(settings_).state_arrays),
                         .average = settings_.has_ema_decay(),
                         .keep_previous = keep_previous,
                         .seed = 3});
    aggregator_.emplace(*variables_, pool_, std::vector<Chunk>{{0, kFloats, 0, 0}}, settings_,
                        *AvailableKernels().back(), may_skip, [](int64_t, size_t) {});
  }
  // Does a step with this gradient for all elements.
  void Step(int64_t step, float gradient, bool skip = false, bool evaluate = false) {
    aggregator_->BeginStep(step, /*slices=*/1);
    const std::vector<float> values(kFloats, gradient);
    ASSERT_TRUE(aggregator_->Add(0, 0, {0, 0}, false, {values.data(), kFloats * 4, nullptr}));
    aggregator_->Proceed({.learning_rate = 0.5, .skip = skip, .evaluate_average = evaluate});
  }

  static constexpr size_t kFloats = 48;
  const VariableLayout layout_{{Weights("a", 0, 20), Weights("b", 32, 16)}, {"a", "b"}};
  config::Optimizer settings_;
  ThreadPool pool_{1};
  std::optional<Variables> variables_;
  std::optional<Aggregator> aggregator_;
};

TEST_F(VariablesTest, BeginWithTheSeedsWeightsAndNoState) {
  Make("type: ADAM ema_decay: 0.5");
  EXPECT_EQ(variables_->updates(), 0);
  EXPECT_EQ(variables_->state_arenas(), 2u);
  EXPECT_EQ(Copy(variables_->Average(0)), Copy(variables_->Weights(0)));
  EXPECT_NE(variables_->Weights(0)[0], 0);
  for (const float x : variables_->State(1, 0)) EXPECT_EQ(x, 0);
  Variables same(layout_, {.seed = 3}), other(layout_, {.seed = 4});
  EXPECT_EQ(same.HashWeights(0), variables_->HashWeights(0));
  EXPECT_NE(other.HashWeights(0), variables_->HashWeights(0));
}

// If a checkpoint restores the weights, they are not initialized from the seed.
TEST_F(VariablesTest, BeginWithNothingWhereTheyAreRestored) {
  Variables variables(layout_, {.state_arenas = 1, .average = true, .restored = true});
  EXPECT_EQ(std::ranges::count(variables.Weights(0), 0.0f),
            static_cast<int64_t>(layout_.arena_floats()));
  variables.Restore(0);
  std::ranges::fill(variables.Weights(0), 1.0f);
  std::ranges::fill(variables.Average(0), 2.0f);
  variables.RestoreDerived(0);
  EXPECT_EQ(variables.EvaluatedAverage()[0], 2.0f);
}

TEST_F(VariablesTest, AnUpdateLeavesWhatWas) {
  Make("type: ADAM ema_decay: 0.5");
  Step(0, 1);
  const auto weights = Copy(variables_->Weights(1)), average = Copy(variables_->Average(1));
  const auto first = Copy(variables_->State(0, 1)), second = Copy(variables_->State(1, 1));
  EXPECT_EQ(variables_->updates(), 1);
  EXPECT_EQ(first[0], 0.1f);
  Step(1, 2);
  EXPECT_EQ(Copy(variables_->Weights(1)), weights);
  EXPECT_EQ(Copy(variables_->Average(1)), average);
  EXPECT_EQ(Copy(variables_->State(0, 1)), first);
  EXPECT_EQ(Copy(variables_->State(1, 1)), second);
  EXPECT_NE(Copy(variables_->State(0, 2)), first);
  EXPECT_EQ(variables_->updates(), 2);
}

// The error is found after computing new values, but those are in the other buffer.
TEST_F(VariablesTest, AnUpdateThatBreaksLeavesWhatWas) {
  Make("type: MOMENTUM momentum: 0.5");
  Step(0, 1);
  const auto weights = Copy(variables_->Weights(1)), state = Copy(variables_->State(0, 1));
  Step(1, std::numeric_limits<float>::infinity());
  ASSERT_TRUE(aggregator_->nonfinite());
  EXPECT_FALSE(aggregator_->StepIsComplete());
  EXPECT_EQ(variables_->updates(), 1);
  EXPECT_EQ(Copy(variables_->Weights(1)), weights);
  EXPECT_EQ(Copy(variables_->State(0, 1)), state);
}

TEST_F(VariablesTest, ASkippedStepKeepsAllAndCountsNothing) {
  Make("type: MOMENTUM momentum: 0.5 ema_decay: 0.5", /*may_skip=*/true);
  Step(0, 1);
  ASSERT_TRUE(aggregator_->StepIsComplete());
  const auto weights = Copy(variables_->Weights(1)), average = Copy(variables_->Average(1));
  Step(1, 1, /*skip=*/true);
  EXPECT_EQ(variables_->updates(), 1);
  EXPECT_EQ(Copy(variables_->Weights(2)), weights);
  // The next update continues from the old state: m = 0.5 * 1 + 1.
  Step(2, 1);
  EXPECT_EQ(variables_->updates(), 2);
  EXPECT_EQ(variables_->State(0, 2)[0], 1.5f);
  EXPECT_EQ(variables_->Average(2)[0], 0.5f * average[0] + 0.5f * variables_->Weights(3)[0]);
}

// If the previous state is not needed, the update is done in place, with the same bits.
TEST_F(VariablesTest, WithoutThePreviousStateTheBitsAreTheSame) {
  for (const char* optimizer :
       {"type: MOMENTUM momentum: 0.5 ema_decay: 0.5", "type: ADAM ema_decay: 0.9"}) {
    std::vector<float> weights[2], average[2], state[2];
    for (const bool keep : {false, true}) {
      Make(optimizer, false, keep);
      for (int step = 0; step < 3; ++step) Step(step, 1.0f + static_cast<float>(step));
      weights[keep] = Copy(variables_->Weights(3));
      average[keep] = Copy(variables_->Average(3));
      state[keep] = Copy(variables_->State(0, 3));
      EXPECT_EQ(variables_->State(0, 2).data() == variables_->State(0, 3).data(), !keep);
    }
    EXPECT_EQ(weights[0], weights[1]) << optimizer;
    EXPECT_EQ(average[0], average[1]) << optimizer;
    EXPECT_EQ(state[0], state[1]) << optimizer;
  }
}

// Workers read it while later steps run.
TEST_F(VariablesTest, TheEvaluatedAverageStaysUntilTheNextEvaluation) {
  Make("type: SGD ema_decay: 0.5");
  Step(0, 1, false, /*evaluate=*/true);
  const auto evaluated = Copy(variables_->EvaluatedAverage());
  EXPECT_EQ(evaluated, Copy(variables_->Average(1)));
  Step(1, 1);
  EXPECT_EQ(Copy(variables_->EvaluatedAverage()), evaluated);
  Step(2, 1, /*skip=*/true, /*evaluate=*/true);
  EXPECT_EQ(Copy(variables_->EvaluatedAverage()), Copy(variables_->Average(2)));
}

}  // namespace
}  // namespace muster
