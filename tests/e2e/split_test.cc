// Runs with a validation set, which selects the best weights. The test set is evaluated once, at
// the end.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Split : public RealJob {
 protected:
  // Tiny evaluation batches make the test set's evaluation last some seconds.
  std::vector<std::string> SlowTest(std::vector<std::string> more = {}) {
    more.insert(more.end(),
                {"data={ format: SYNTHETIC validation_fraction: 0.3 synthetic { height: 12 width: "
                 "12 channels: 3 train_samples: 90 test_samples: 40000 } }",
                 "evaluation.batch=1", "evaluation.use_ema=true", "optimizer.ema_decay=0.9"});
    return more;
  }
  // Waits until the last validation evaluation is recorded and the test evaluation is running.
  bool Tests(const std::string& run) {
    return Eventually(30, [&] {
      const auto lines = WithoutEvents(Metrics(run));
      return !lines.empty() && lines.back()["step"] == kSteps &&
             lines.back().contains("validation_accuracy");
    });
  }
  // The number of lines with this key, except the last one.
  static int64_t CountOf(const std::vector<nlohmann::json>& metrics, const char* key) {
    return std::ranges::count_if(metrics, [&](const nlohmann::json& line) {
      return line.contains(key) && !line.contains("final");
    });
  }
  static void ExpectTheSame(const std::vector<nlohmann::json>& metrics,
                            const std::vector<nlohmann::json>& expected) {
    EXPECT_EQ(Curve(metrics), Curve(expected));
    EXPECT_EQ(CountOf(metrics, "test_accuracy"), 1);
    for (const char* key : {"validation_loss", "validation_accuracy", "best_validation_accuracy"}) {
      EXPECT_EQ(metrics.back()[key], expected.back()[key]) << key;
    }
  }

  static constexpr int64_t kSteps = 4;  // 90 samples less some 27, in batches of 50, two epochs
};

TEST_F(Split, TheValidationSetChoosesAndTheTestSetComesLast) {
  const Outcome run =
      Succeeded(Launch({"data.validation_fraction=0.2", "evaluation.every_steps=2",
                        "evaluation.every_epochs=0", "evaluation.confusion_matrix=true"}));
  const auto& metrics = run.metrics;
  const auto evaluations = CountOf(metrics, "validation_accuracy");
  EXPECT_EQ(CountOf(metrics, "test_accuracy"), 1);
  EXPECT_GT(evaluations, 2);
  double best = 0;
  for (const nlohmann::json& line : metrics) {
    EXPECT_FALSE(line.contains("best_test_accuracy"));
    if (line.contains("validation_accuracy")) {
      best = std::max(best, line["validation_accuracy"].get<double>());
    }
  }
  const nlohmann::json &last = metrics.back(), &tested = metrics[metrics.size() - 2];
  EXPECT_EQ(tested["step"], last["step"]);
  EXPECT_EQ(tested["test_accuracy"], last["test_accuracy"]);
  EXPECT_EQ(tested["test_loss"], last["test_loss"]);
  EXPECT_FALSE(tested.contains("validation_accuracy"));
  EXPECT_EQ(last["best_validation_accuracy"], best);
  const auto model = std::ranges::find(last["models"], "best.safetensors",
                                       [](const nlohmann::json& one) { return one["file"]; });
  ASSERT_NE(model, last["models"].end());
  EXPECT_EQ((*model)["step"], last["best_step"]);
  EXPECT_EQ((*model)["validation_accuracy"], best);
  EXPECT_THAT(Unwrapped(run.log),
              AllOf(HasSubstr(" images to choose the best weights; "),
                    HasSubstr(" validation images"), HasSubstr("validation accuracy "),
                    HasSubstr("test accuracy "), Not(HasSubstr("also used to choose"))));
  // The test set's 40 samples, not those of the validation set.
  const std::string counts = Slurp(Path("run0") / "confusion_matrix.csv");
  EXPECT_THAT(counts, HasSubstr(",40\n"));

  const Outcome evaluated = Muster({"eval", Path("run0"), "--last"});
  EXPECT_THAT(evaluated.log, AllOf(HasSubstr("model.safetensors"), HasSubstr("40 test images"),
                                   HasSubstr("identical")));
  const Outcome validated = Muster({"eval", Path("run0"), "--validation-set"});
  EXPECT_THAT(validated.log, AllOf(HasSubstr("best.safetensors"), HasSubstr(" validation images"),
                                   HasSubstr("identical"), Not(HasSubstr("test images"))));
  std::ofstream(Path("run0/best.safetensors")) << "damaged";
  ExpectRefused({"eval", Path("run0")}, ExitCode::kData, "best.safetensors");
  EXPECT_EQ(Muster({"eval", Path("run0"), "--last"}).exit_code, 0);
  std::filesystem::remove(Path("run0/best.safetensors"));
  ExpectRefused({"eval", Path("run0"), "--validation-set", "--set", "data.validation_fraction=0"},
                ExitCode::kUsage, "--validation-set: the data have no validation set");
  EXPECT_THAT(Muster({"inspect", Path("run0")}).log,
              AllOf(HasSubstr("validation accuracy"), HasSubstr("test accuracy")));
  // A larger share, or another seed, would contain samples that the run trained on.
  for (const char* setting : {"data.validation_fraction=0.3", "run.seed=2"}) {
    ExpectRefused({"eval", Path("run0"), "--validation-set", "--set", setting}, ExitCode::kUsage,
                  "data.validation_fraction=0.2 and run.seed=1");
  }
  EXPECT_EQ(
      Muster({"eval", Path("run0"), "--validation-set", "--set", "data.validation_fraction=0.1"})
          .exit_code,
      0);
  EXPECT_THAT(Muster({"top", Path("run0"), "--once"}).log, HasSubstr("validation accuracy"));
}

TEST_F(Split, AWorkerIsKilledWhileTheTestSetIsEvaluated) {
  const auto expected = WithoutEvents(Succeeded(Launch(SlowTest())).metrics);
  const auto job = Start("run", SlowTest());
  ASSERT_TRUE(Tests("run")) << job->Log();
  ASSERT_EQ(::kill(Find("run", 1), SIGKILL), 0);
  ASSERT_EQ(job->Wait(60), 0) << job->Log();
  const auto metrics = Metrics("run");
  ASSERT_FALSE(Events(metrics).empty());
  EXPECT_GT(Events(metrics).front().value("blocks", 0), 0);
  ExpectTheSame(WithoutEvents(metrics), expected);
}

TEST_F(Split, ARunGoesOnWithTheTestSet) {
  const auto expected = Succeeded(Launch(SlowTest())).metrics;
  // Stopped by the user: the validation result is kept.
  const auto stopped = Start("stopped", SlowTest());
  ASSERT_TRUE(Tests("stopped")) << stopped->Log();
  EXPECT_EQ(stopped->EndBy(SIGTERM, 30), Code(ExitCode::kTerminated)) << stopped->Log();
  ExpectTheSame(Succeeded(GoOn("stopped")).metrics, expected);
  // Killed: both evaluations are repeated.
  const auto killed = Start("killed", SlowTest());
  ASSERT_TRUE(Tests("killed")) << killed->Log();
  KillAll("killed", *killed);
  ExpectTheSame(Succeeded(GoOn("killed")).metrics, expected);
  // A complete run has nothing left to do.
  ExpectTheSame(Succeeded(GoOn("killed")).metrics, expected);
}

TEST_F(Split, ARunThatStopsEarlyIsTested) {
  const Outcome run = Succeeded(
      Launch(SlowTest({"run.epochs=20", "learning_rate.base=0", "evaluation.patience=2"})));
  const nlohmann::json& last = run.metrics.back();
  EXPECT_EQ(last["stopped_early"], true);
  EXPECT_THAT(last["stop_reason"].get<std::string>(), HasSubstr("no better validation accuracy"));
  EXPECT_EQ(CountOf(run.metrics, "test_accuracy"), 1);
  EXPECT_EQ(run.metrics[run.metrics.size() - 2]["test_loss"], last["test_loss"]);
}

TEST_F(Split, NoFinalEvaluationNoTest) {
  const Outcome run =
      Succeeded(Launch({"data.validation_fraction=0.2", "evaluation.skip_final=true",
                        "evaluation.every_steps=2", "evaluation.every_epochs=0"}));
  EXPECT_FALSE(run.metrics.back().contains("test_accuracy"));
  EXPECT_TRUE(run.metrics.back().contains("validation_accuracy"));
}

}  // namespace
}  // namespace muster::testing
