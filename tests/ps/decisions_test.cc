// The decisions after evaluations: against closed forms and PyTorch's ReduceLROnPlateau
// (golden/plateaus.txt, by scripts/make_plateau_golden.py).
#include "ps/evaluate/decisions.h"

#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>

#include "common/base/error.h"
#include "common/checkpoint/early_stop.h"
#include "ps/record/evaluation_record.h"
#include "ps/update/schedule.h"
#include "tests/base/paths.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

config::Config Parse(const std::string& text) {
  config::Config config;
  MUSTER_CHECK(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// Evaluations at steps 10, 20, …
std::vector<std::string> StopReasons(Decisions& decisions, const std::vector<double>& accuracies) {
  std::vector<std::string> reasons;
  for (const double accuracy : accuracies) {
    decisions.Add({.version = 10 * (std::ssize(reasons) + 1), .accuracy = accuracy});
    reasons.push_back(decisions.StopReason());
  }
  return reasons;
}

TEST(DecisionsTest, PatienceCountsEvaluationsInARow) {
  Decisions decisions(Parse("evaluation { patience: 3 }"));
  EXPECT_TRUE(decisions.any());
  const auto reasons = StopReasons(decisions, {0.5, 0.5, 0.4, 0.6, 0.6, 0.1, 0.599});
  for (size_t i = 0; i + 1 < reasons.size(); ++i) EXPECT_EQ(reasons[i], "") << i;
  EXPECT_EQ(
      reasons.back(),
      "no better test accuracy than 0.6 (step 40) in 3 evaluations: evaluation.patience is 3");
}

// An improvement of min_delta or less does not count, and does not raise the threshold.
TEST(DecisionsTest, MinDeltaCannotBeCreptUpTo) {
  Decisions decisions(Parse("evaluation { patience: 2 min_delta: 0.25 }"));
  const auto reasons = StopReasons(decisions, {0.25, 0.5, 0.75});
  EXPECT_EQ(reasons[1], "");
  EXPECT_EQ(reasons[2], "") << "0.75 is better than the best, 0.25, by more than 0.25";
  EXPECT_THAT(StopReasons(decisions, {1, 1}).back(),
              HasSubstr("no better test accuracy than 0.75 (step 30), by more than 0.25, in 2 "
                        "evaluations"));
}

// Neither a high accuracy nor a place before all others makes such weights the best.
TEST(DecisionsTest, ALossThatIsNotFiniteIsNoImprovement) {
  for (const double loss : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    Decisions decisions(Parse("evaluation { patience: 2 stop_at_accuracy: 0.5 }"));
    EvaluationRecord record;
    const auto add = [&](EvaluationResult result) {
      decisions.Add(result);
      record.Add(result);
      return decisions.StopReason();
    };
    EXPECT_EQ(add({.version = 10, .loss = loss, .accuracy = 0.9}), "");
    EXPECT_EQ(record.best_step(), 0);
    EXPECT_EQ(add({.version = 20, .loss = loss, .accuracy = 1}),
              "no finite test loss in 2 evaluations: evaluation.patience is 2");
    EXPECT_EQ(add({.version = 30, .loss = 3, .accuracy = 0.1}), "");
    EXPECT_EQ(record.best_step(), 30);
    EXPECT_EQ(add({.version = 40, .loss = loss, .accuracy = 1}), "");
    EXPECT_EQ(record.best_step(), 30);
    EXPECT_THAT(add({.version = 50, .loss = loss, .accuracy = 1}),
                HasSubstr("no better test accuracy than 0.1 (step 30) in 2 evaluations"));
  }
}

TEST(DecisionsTest, WithoutASettingNothingIsDecided) {
  Decisions decisions(Parse("learning_rate { type: COSINE base: 1 }"));
  EXPECT_FALSE(decisions.any());
  for (const std::string& reason : StopReasons(decisions, std::vector<double>(50, 0.5))) {
    EXPECT_EQ(reason, "");
  }
  EXPECT_EQ(decisions.reductions(), 0);
}

TEST(DecisionsTest, AnAccuracyThatIsReachedComesFirst) {
  Decisions decisions(Parse("evaluation { patience: 1 stop_at_accuracy: 0.5 }"));
  const auto reasons = StopReasons(decisions, {0.4, 0.6});
  EXPECT_EQ(reasons[0], "");
  EXPECT_EQ(reasons[1],
            "reached the test accuracy 0.6 at step 20: evaluation.stop_at_accuracy is 0.5");
}

// Early versions did not say what the score is. Their losses were not negative.
TEST(DecisionsTest, AStateSaysWhetherTheLossDecides) {
  checkpoint::Evaluated state;
  EXPECT_FALSE(IsByLoss(state));  // the accuracy is 0
  state.set_accuracy(-0.5);
  EXPECT_TRUE(IsByLoss(state));
  state.set_by_loss(false);
  EXPECT_FALSE(IsByLoss(state));
  Decisions decisions(Parse("evaluation { patience: 1 stop_at_accuracy: 0.5 }"));
  decisions.Add({.version = 10, .loss = -3});
  decisions.Add({.version = 20, .loss = -2});
  EXPECT_TRUE(IsByLoss(decisions.Keep()));
  EXPECT_THAT(decisions.StopReason(), HasSubstr("test loss than -3 (step 10)"));
}

// A state saved without patience can continue with any. The reason names the current patience.
TEST(DecisionsTest, PatienceMayBeChosenLater) {
  Decisions without(Parse(""));
  (void)StopReasons(without, {0.5, 0.4, 0.4, 0.4});
  checkpoint::State state;
  state.set_step(40);
  *state.mutable_decisions() = without.Keep();
  const auto reason = [&](const std::string& settings, int64_t total_steps = 100) {
    return StopReasonAt(Parse("evaluation { " + settings + " }").evaluation(), state, total_steps);
  };
  EXPECT_EQ(reason("patience: 0"), "");
  EXPECT_EQ(reason("patience: 4"), "");
  EXPECT_THAT(reason("patience: 2"), HasSubstr("in 3 evaluations: evaluation.patience is 2"));
  EXPECT_EQ(reason("patience: 2", 40), "") << "the run is complete";
  EXPECT_THAT(reason("stop_at_accuracy: 0.4"), HasSubstr("reached the test accuracy 0.4"));
  EXPECT_THAT(HowToGoOn(Parse("evaluation { patience: 2 stop_at_accuracy: 0.4 }").evaluation(),
                        state.decisions()),
              AllOf(HasSubstr("evaluation.stop_at_accuracy=X with X above 0.4"),
                    HasSubstr("evaluation.patience=N with N above 3")));
  state.set_step(45);  // between two evaluations
  EXPECT_EQ(reason("patience: 2"), "");
}

class PlateauTest : public ::testing::Test {
 protected:
  // Calls `with` for each case of the golden file, with its settings, accuracies and rates.
  template <typename With>
  void ForEachCase(const With& with) {
    std::ifstream file(SourcePath("tests/ps/golden/plateaus.txt"));
    ASSERT_TRUE(file) << "no golden file";
    std::string line, settings;
    std::vector<std::pair<double, double>> evaluations;
    int cases = 0;
    const auto end = [&] {
      if (settings.empty()) return;
      SCOPED_TRACE(settings);
      EXPECT_EQ(evaluations.size(), 60u);
      with(Parse("learning_rate { " + settings + " }"), evaluations);
      evaluations.clear();
      ++cases;
    };
    while (std::getline(file, line)) {
      if (line.starts_with("#")) continue;
      if (line.starts_with("case ")) {
        end();
        settings = line.substr(5);
        continue;
      }
      std::istringstream in(line);
      double accuracy, rate;
      ASSERT_TRUE(in >> accuracy >> rate) << line;
      evaluations.emplace_back(accuracy, rate);
    }
    end();
    EXPECT_EQ(cases, 4);
  }
};

TEST_F(PlateauTest, AsPyTorch) {
  ForEachCase([](const config::Config& config, const auto& evaluations) {
    Decisions decisions(config);
    EXPECT_TRUE(decisions.any());
    const LearningRateSchedule schedule(config.learning_rate(), 1, 0);
    int64_t step = 0;
    for (const auto& [accuracy, rate] : evaluations) {
      decisions.Add({.version = ++step, .accuracy = accuracy});
      const double got = schedule.At(step, decisions.reductions());
      EXPECT_NEAR(got, rate, 1e-12 * rate) << "evaluation " << step;
    }
    EXPECT_GT(decisions.reductions(), 1);
  });
}

// The number of reductions after each evaluation, in a run that was stopped before one of them.
std::vector<int64_t> Reductions(const config::Config& config,
                                const std::vector<std::pair<double, double>>& evaluations,
                                size_t stopped) {
  auto decisions = std::make_unique<Decisions>(config);
  std::vector<int64_t> all;
  for (size_t i = 0; i < evaluations.size(); ++i) {
    if (i == stopped) {
      checkpoint::Decisions kept;
      EXPECT_TRUE(kept.ParseFromString(decisions->Keep().SerializeAsString()));
      decisions = std::make_unique<Decisions>(config);
      decisions->Restore(kept);
    }
    decisions->Add({.version = static_cast<int64_t>(i) + 1, .accuracy = evaluations[i].first});
    all.push_back(decisions->reductions());
  }
  return all;
}

TEST_F(PlateauTest, ARunThatGoesOnAnywhereDecidesTheSame) {
  ForEachCase([](const config::Config& config, const auto& evaluations) {
    const auto whole = Reductions(config, evaluations, evaluations.size());
    for (size_t stopped = 0; stopped < evaluations.size(); ++stopped) {
      EXPECT_EQ(Reductions(config, evaluations, stopped), whole) << stopped;
    }
  });
}

}  // namespace
}  // namespace muster
