// A disk that is full for a while: what is seen of the run meanwhile, what its end says of
// TensorBoard's files, and what they get back.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/small_disk.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FullDisk : public SmallDisk {
 protected:
  // Longer than the test, which ends it.
  std::unique_ptr<Process> Begin() {
    return std::make_unique<Process>(
        LaunchWords(Path("tiny.txtpb"), Path("data"), Path("small/run"),
                    {"run.steps=1000000", "evaluation.every_epochs=0", "run.log_every_steps=100",
                     "checkpoint.save_to=" + Path("kept").string()}),
        Path("log"));
  }
  static bool Says(const Process& job, const std::string& text) {
    return Eventually(60, [&] { return job.Log().find(text) != std::string::npos; });
  }
};

TEST_F(FullDisk, TensorBoardGetsBackWhatMetricsHave) {
  const auto first = Begin();
  ASSERT_TRUE(Reaches("small/run", 200)) << first->Log();
  Fill();
  ASSERT_TRUE(Says(*first, ".muster: cannot be written")) << first->Log();
  first->Signal(SIGTERM);
  EXPECT_EQ(first->Wait(60), 143);
  EXPECT_THAT(first->Log(),
              AllOf(HasSubstr(".muster: lacks "), HasSubstr(" of its events, of steps"),
                    HasSubstr("No space left on device; TensorBoard does not")));

  std::filesystem::remove(Path("small") / "fill");
  Process again({"muster", "launch", "--resume", Path("small/run")}, Path("again"));
  ASSERT_TRUE(Says(again, "TensorBoard's files of this run lacked its steps")) << again.Log();
  again.Signal(SIGTERM);
  EXPECT_EQ(again.Wait(60), 143);
  EXPECT_THAT(again.Log(), Not(HasSubstr("lacks ")));
}

TEST_F(FullDisk, WhoLooksInIsToldThatTheStatusIsOld) {
  const auto job = Begin();
  ASSERT_TRUE(Reaches("small/run", 200)) << job->Log();
  Fill();
  EXPECT_TRUE(Eventually(60, [&] {
    return Muster({"top", "--once", Path("small/run")})
               .log.find("what is shown is old: its disk") != std::string::npos;
  })) << job->Log();
  job->Signal(SIGTERM);
  EXPECT_EQ(job->Wait(60), 143);
  std::filesystem::remove(Path("small/run") / "status.json");
  const Outcome none = Muster({"top", "--once", Path("small/run")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.log, HasSubstr("has no status.json, which a run's server writes each second: "
                                  "its disk has no room left"));
}

TEST_F(FullDisk, AnExportWithoutRoomSaysSo) {
  ASSERT_EQ(Launch({"run.steps=1"}).exit_code, 0);
  Fill();
  for (const std::string format : {"safetensors", "npz", "onnx"}) {
    const std::string file = Path("small/model." + format);
    const Outcome outcome = Muster({"export", Path("run0"), "--format", format, file});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.log;
    EXPECT_THAT(outcome.log,
                AllOf(HasSubstr(file + ": cannot be written"), HasSubstr("No space left")));
    EXPECT_FALSE(fs::exists(file));
  }
}

}  // namespace
}  // namespace muster::testing
