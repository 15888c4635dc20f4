// Checkpoints and model files of released versions remain usable (golden/README.md).
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Other processors round differently, which changes the last digits of the loss.
constexpr double kLossTolerance = 1e-4;

const fs::path kGolden = SourcePath("tests/e2e/golden");

class GoldenTest : public RealJob, public ::testing::WithParamInterface<std::string> {
 protected:
  GoldenTest() : expected_(Json::parse(Slurp(kGolden / GetParam() / "expected.json"))) {
    fs::copy(kGolden / GetParam() / "run", Path("run"), fs::copy_options::recursive);
  }

  std::string Checkpoint() const { return Checkpoints("run").back(); }
  void ExpectEvaluates(const std::string& weights) {
    const Outcome outcome = Succeeded(Muster({"eval", weights, "--json"}));
    const Json result = Json::parse(outcome.log);
    EXPECT_EQ(result["step"], expected_["step"]);
    EXPECT_EQ(result["test_accuracy"], expected_["test_accuracy"]);
    EXPECT_NEAR(result["test_loss"].get<double>(), expected_["test_loss"].get<double>(),
                kLossTolerance);
  }

  const Json expected_;
};

TEST_P(GoldenTest, ACheckpointIsWholeAndNamesItsVersion) {
  const Outcome outcome = Succeeded(Muster({"inspect", Checkpoint()}));
  EXPECT_THAT(outcome.log, ::testing::HasSubstr(GetParam()));
}

TEST_P(GoldenTest, ACheckpointEvaluates) { ExpectEvaluates(Checkpoint()); }

TEST_P(GoldenTest, AModelFileEvaluatesByItself) {
  fs::copy(Path("run") / "model.safetensors", Path("alone.safetensors"));
  fs::remove_all(Path("run"));
  ExpectEvaluates(Path("alone.safetensors"));
}

TEST_P(GoldenTest, ARunIsListedPlottedAndLaunchedAgain) {
  const Outcome runs = Succeeded(Muster({"runs", Path("."), "--json"}));
  const Json row = Json::parse(runs.log).at(0);
  EXPECT_EQ(row["state"], "completed");
  EXPECT_EQ(row["steps"], expected_["step"]);
  (void)Succeeded(Muster({"plot", Path("run"), "--output", Path("run.svg")}));
  EXPECT_TRUE(fs::exists(Path("run.svg")));
  const Outcome again =
      Succeeded(Muster({"launch", Path("run/config.txtpb"), "--run-dir", Path("again"), "--set",
                        "run.log_every_steps=1000"},  // the loss of the whole run, as then
                       "again"));
  EXPECT_EQ(again.metrics.back()["step"], expected_["step"]);
  // Not the test loss: the gradient of a bias before a batch norm is rounding noise, which Adam
  // makes as large as a step. Training does not see it.
  EXPECT_NEAR(again.metrics.back()["train_loss"].get<double>(),
              Metrics("run").back()["train_loss"].get<double>(), kLossTolerance);
}

// Other processors may give other bits.
TEST_P(GoldenTest, ARunIsVerified) {
  const Outcome outcome = Muster({"verify", Path("run"), "--json"});
  const Json result = Json::parse(outcome.log.substr(outcome.log.find('{')));  // after warnings
  EXPECT_GT(result["tensors"], 0);
  EXPECT_EQ(outcome.exit_code, result["same"] ? 0 : 1);
}

TEST_P(GoldenTest, ARunResumes) {
  const std::vector<Json> before = Metrics("run");
  const int64_t steps = expected_["step"].get<int64_t>();
  const int64_t longer = steps + expected_["steps_per_epoch"].get<int64_t>();
  const Outcome outcome = Succeeded(GoOn("run", {"--steps", std::to_string(longer)}));
  ASSERT_GE(outcome.metrics.size(), before.size());
  for (const Json& line : before) {
    if (line.value("final", false)) continue;  // the extended run has another last line
    EXPECT_THAT(outcome.metrics, ::testing::Contains(line));
  }
  EXPECT_EQ(outcome.metrics.back()["step"], longer);
}

std::vector<std::string> Versions() {
  std::vector<std::string> versions;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    if (entry.is_directory()) versions.push_back(entry.path().filename());
  }
  std::ranges::sort(versions);
  return versions;
}

INSTANTIATE_TEST_SUITE_P(Versions, GoldenTest, ::testing::ValuesIn(Versions()),
                         [](const auto& info) { return "Version" + std::to_string(info.index); });

}  // namespace
}  // namespace muster::testing
