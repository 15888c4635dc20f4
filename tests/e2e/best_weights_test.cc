// The best weights of a run survive a server that is killed while it writes them. If no file has
// them, an error says so.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/base/paths.h"
#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// With a learning rate of 0, no evaluation is better than the first one, at step 7 of 24.
const std::vector<std::string> kFirstIsBest{"run.epochs=4", "evaluation.every_epochs=0",
                                            "evaluation.every_steps=7", "learning_rate.base=0",
                                            "checkpoint.keep_last=1"};

class BestWeights : public RealJob {};

// A checkpoint refers only to best weights that are on the disk.
TEST_F(BestWeights, AServerThatIsKilledWhileItWritesThemLosesNone) {
  if (!kCanPreload) GTEST_SKIP() << "LD_PRELOAD does not work with a sanitizer's runtime";
  std::vector<std::string> settings = kFirstIsBest;
  settings.insert(settings.end(), {"checkpoint.every_steps=5", "run.max_restarts=0"});
  Process process(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"), settings),
                  Path("run.log"),
                  {.environment = {{"LD_PRELOAD", FaultsLibrary()}, {"MUSTER_FAULT", "best"}}});
  EXPECT_EQ(process.Wait(60), 6) << process.Log();
  EXPECT_FALSE(fs::exists(Path("run/best.safetensors")));
  const Outcome rest = Succeeded(GoOn("run"));
  EXPECT_EQ(MetadataIn(Path("run/best.safetensors"))["step"], "7");
}

TEST_F(BestWeights, ThatAreNowhereAreSpokenOf) {
  ASSERT_EQ(Launch(kFirstIsBest).exit_code, 0);
  fs::remove(Path("run0/best.safetensors"));
  const Outcome lost = GoOn("run0", {"--epochs", "5"});
  EXPECT_EQ(lost.exit_code, 1) << lost.log;
  EXPECT_THAT(lost.log,
              AllOf(HasSubstr("Warning: "), HasSubstr("Completed: "),
                    HasSubstr("best.safetensors: the weights of the best evaluation, at step 7"),
                    HasSubstr("/config.txtpb"), Not(HasSubstr("fix that, then"))));
}

// Without a validation set the last weights are used, with a hint.
TEST_F(BestWeights, TheLastOnesSayThatOthersAreBetter) {
  ASSERT_EQ(Launch(kFirstIsBest).exit_code, 0);
  EXPECT_THAT(Muster({"eval", Path("run0")}).log,
              AllOf(HasSubstr("model.safetensors"), HasSubstr("--best are those of step 7")));
  EXPECT_THAT(Muster({"eval", Path("run0"), "--best"}).log, Not(HasSubstr("--best are")));
}

// The best weights in the run directory are older than the best evaluation.
TEST_F(BestWeights, OlderOnesAreNotTakenForTheBest) {
  ASSERT_EQ(Launch({"run.epochs=1"}).exit_code, 0);
  fs::remove(Path("run0/run.events"));  // then metrics.jsonl counts
  const fs::path metrics = Path("run0/metrics.jsonl");
  const std::string lines = Slurp(metrics);
  const size_t last = lines.rfind('\n', lines.size() - 2) + 1;
  std::ofstream(metrics) << lines.substr(0, last) << R"({"step":500,"test_accuracy":0.99})"
                         << "\n"
                         << lines.substr(last);
  const Outcome best = Muster({"inspect", Path("run0"), "--best"});
  EXPECT_EQ(best.exit_code, 3);
  EXPECT_THAT(best.log, HasSubstr("best evaluation was at step 500"));
}

}  // namespace
}  // namespace muster::testing
