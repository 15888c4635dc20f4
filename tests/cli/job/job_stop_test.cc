// Jobs that are stopped from outside.
#include <gmock/gmock-more-matchers.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/cli/job/job_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class JobStopTest : public JobTest {
 protected:
  static constexpr const char* kInterrupted =
      R"(on-term:{"summary":{"end":"INTERRUPTED","steps":57,"at":{"elapsed_s":6}}};)";
  const std::string running_ = std::string(kListen) + kStarted + kProgress + "touch:running;";

  // Starts a job and waits until it is training.
  void StartRunning(Job& job) {
    Launch(job);
    ASSERT_TRUE(Appears("running") && Appears("up-0") && Appears("up-1"));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_THAT(Processes(), SizeIs(4));
  }
  void WorkersUp(const std::string& first = "") {
    Worker(0, first + "touch:up-0;");
    Worker(1, first + "touch:up-1;");
  }
};

class StopSignalTest : public JobStopTest, public ::testing::WithParamInterface<int> {};

TEST_P(StopSignalTest, StopsEverythingAndSaysSo) {
  Server(kInterrupted + running_);
  WorkersUp();
  Job job;
  StartRunning(job);
  job.Signal(GetParam());
  Finished finished = job.Finish(5);
  EXPECT_EQ(finished.exit_code, GetParam() == SIGINT ? 130 : 143);
  EXPECT_TRUE(NoProcessLeft(0));
  EXPECT_THAT(finished.err, IsEmpty());
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("Ended early: 57 steps"), HasSubstr("at step 57 of 3,910"),
                    HasSubstr(GetParam() == SIGINT ? "Stopped by SIGINT" : "Stopped by SIG")));
}

INSTANTIATE_TEST_SUITE_P(All, StopSignalTest, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_F(JobStopTest, ChildrenThatIgnoreSigtermAreKilledInTime) {
  Server("ignore:15;" + running_);
  WorkersUp("ignore:15;");
  Job job;
  StartRunning(job);
  job.Signal(SIGTERM);
  EXPECT_EQ(job.Finish(5).exit_code, 143);
  EXPECT_TRUE(NoProcessLeft(0));
}

// Two keystrokes in quick succession kill the workers before they are asked to stop.
TEST_F(JobStopTest, ASecondKeystrokeCountsHoweverFast) {
  Server("term-touch:server-asked;" + running_);
  Worker(0, "term-touch:worker-asked;touch:up-0;");
  Worker(1, "term-touch:worker-asked;touch:up-1;");
  Job job;
  StartOnTerminal(job, {"launch", config(), "--workers", "2", "--data", "."});
  ASSERT_TRUE(Appears("running") && Appears("up-0") && Appears("up-1"));
  job.Type("\x03");
  ASSERT_TRUE(Appears("server-asked"));
  job.Type("\x03");
  EXPECT_EQ(job.Finish(5).exit_code, 130);
  EXPECT_FALSE(std::filesystem::exists(Path("worker-asked")));
  EXPECT_TRUE(NoProcessLeft(0));
}

TEST_F(JobStopTest, StoppedBeforeTheServerListens) {
  Server("touch:running;");
  Job job;
  Launch(job);
  ASSERT_TRUE(Appears("running"));
  job.Signal(SIGINT);
  EXPECT_EQ(job.Finish(5).exit_code, 130);
  EXPECT_TRUE(NoProcessLeft(0));
}

TEST_F(JobStopTest, AKilledLauncherLeavesNoProcess) {
  Server("ignore:15;" + running_);
  WorkersUp("ignore:15;");
  Job job;
  StartRunning(job);
  job.Signal(SIGKILL);
  job.Finish(5);
  EXPECT_TRUE(NoProcessLeft(1));
}

TEST_F(JobStopTest, AKilledLauncherLeavesNoProcessThatIsJustStarting) {
  Server(std::string(kListen));
  for (int delay_ms = 0; delay_ms < 30; delay_ms += 3) {
    Job job;
    Start(job, {"launch", config(), "--workers", "8", "--data", "."});
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    job.Signal(SIGKILL);
    job.Finish(5);
    EXPECT_TRUE(NoProcessLeft(1)) << "after " << delay_ms << " ms";
  }
}

}  // namespace
}  // namespace muster::testing
