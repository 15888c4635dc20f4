// Evaluations that lower the learning rate or end a run. Checks the output, also after a kill.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using Patience = RealJob;

// The weights hardly change, so each evaluation has the same accuracy as the first one, at step 3.
// The evaluations at 6 and 9, then at 12 and 15, and so on, are no improvements.
const std::vector<std::string> kPlateau{
    "run.epochs=100",
    "evaluation.every_steps=3",
    "evaluation.every_epochs=0",
    "learning_rate.type=PLATEAU",
    "learning_rate.base=1e-8",
    "learning_rate.factor=0.5",
    "learning_rate.plateau_patience=2",
    "checkpoint.every_steps=5",
    "optimizer.ema_decay=0.9",
    "evaluation.use_ema=true",
};

TEST_F(Patience, TheRateFallsAndFallsTheSameAfterAKill) {
  const Outcome whole = Succeeded(Launch(kPlateau));
  for (const nlohmann::json& line : whole.metrics) {
    if (line.contains("final") || line.contains("test_accuracy")) continue;
    const int64_t step = line["step"].get<int64_t>() - 1;  // the last one of the interval
    const auto falls = static_cast<double>(step < 3 ? 0 : (step - 3) / 6);
    EXPECT_DOUBLE_EQ(line["learning_rate"].get<double>(), 1e-8 * std::pow(0.5, falls)) << step;
  }
  EXPECT_THAT(Unwrapped(whole.log),
              HasSubstr("PLATEAU 1e-08, times 0.5 after 2 evaluations without a better accuracy"));
  EXPECT_THAT(
      whole.log,
      ContainsRegex("\nThe learning rate falls from 1e-08 to 5e-09: no better test accuracy "
                    "than 0.[0-9]+ .step 3. in 2 evaluations\n"));
  EXPECT_THAT(Muster({"top", Path("run0"), "--once"}).log, HasSubstr("learning rate "));
  const auto process = Start("run", kPlateau);
  ASSERT_TRUE(Reaches("run", 20));
  KillAll("run", *process);
  const Outcome rest = Succeeded(GoOn("run", {"--workers", "3"}));
  EXPECT_EQ(rest.hash(), whole.hash());
  EXPECT_EQ(Curve(rest.metrics), Curve(whole.metrics));
}

const std::vector<std::string> kStill{
    "run.epochs=20",          "evaluation.every_steps=3", "evaluation.every_epochs=0",
    "learning_rate.base=0.0", "evaluation.patience=3",    "checkpoint.every_steps=5",
};

TEST_F(Patience, ARunThatGetsNoBetterEndsAndSaysSo) {
  const Outcome whole = Succeeded(Launch(kStill));
  const nlohmann::json& last = whole.metrics.back();
  EXPECT_EQ(last["step"], 12);
  EXPECT_EQ(last["reason"], "completed");
  EXPECT_EQ(last["stopped_early"], true);
  const std::string reason = last["stop_reason"];
  EXPECT_THAT(reason, ContainsRegex("^no better test accuracy than 0.[0-9]+ .step 3. in 3 "
                                    "evaluations: evaluation.patience is 3$"));
  EXPECT_EQ(whole.metrics[whole.metrics.size() - 2]["decision"], "stopped early: " + reason);
  EXPECT_THAT(whole.log, AllOf(HasSubstr("\nStopped early: " + reason + "\n"),
                               HasSubstr("\n  stopped early  no better test accuracy than "),
                               HasSubstr("\nCompleted: 12 steps")));
}

TEST_F(Patience, WhatItTakesToGoOnIsSaid) {
  ASSERT_EQ(Launch(kStill).exit_code, 0);
  const auto stopped = Curve(Metrics("run0"));
  const Outcome same = Succeeded(GoOn("run0"));
  EXPECT_THAT(same.log, HasSubstr("nothing is left to do (12 of 120 steps done, stopped early: no "
                                  "better"));
  EXPECT_EQ(Curve(same.metrics), stopped);
  const Outcome longer = GoOn("run0", {"--epochs", "50"});
  EXPECT_EQ(longer.exit_code, 2);
  EXPECT_THAT(
      longer.log,
      AllOf(HasSubstr("stopped early: no better test accuracy"),
            HasSubstr("to continue, use --set evaluation.patience=N with N above 3, or 0")));
  EXPECT_EQ(Curve(Metrics("run0")), stopped);
  const Outcome lower = GoOn("run0", {"--set", "evaluation.patience=2"});
  EXPECT_EQ(lower.exit_code, 2);
  std::vector<std::string> patient = kStill;
  patient[4] = "evaluation.patience=5";
  const Outcome whole = Launch(patient);
  const Outcome more = Succeeded(GoOn("run0", {"--set", "evaluation.patience=5"}));
  EXPECT_THAT(more.log, Not(HasSubstr("12 of 120 steps done,")));
  EXPECT_EQ(more.metrics.back()["step"], 18);
  // Earlier decisions remain recorded.
  auto curve = Curve(more.metrics);
  const auto then = std::ranges::find_if(
      curve, [](const auto& line) { return line["step"] == 12 && line.contains("decision"); });
  ASSERT_NE(then, curve.end());
  then->erase("decision");
  EXPECT_EQ(curve, Curve(whole.metrics));
}

}  // namespace
}  // namespace muster::testing
