// Observing a run from outside: its status, and a stall that is explained while it lasts.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace watch_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Watch : public RealJob {
 protected:
  std::string Status(const std::string& name) { return Muster({"top", "--json", Path(name)}).log; }
};

// Long enough to be ended by the test.
const std::vector<std::string> kLong{"run.steps=1000000", "cluster.workers=2",
                                     "evaluation.every_epochs=0", "run.log_every_steps=100"};

TEST_F(Watch, ARunIsSeenWhileItRunsAndAfterwards) {
  const std::unique_ptr<Process> job = Start("run", kLong);
  ASSERT_TRUE(Reaches("run", 100));
  ASSERT_TRUE(
      Eventually(60, [&] { return Status("run").find("\"train_loss\"") != std::string::npos; }));
  const Outcome live = Muster({"top", "--once", Path("run")});
  EXPECT_EQ(live.exit_code, 0);
  EXPECT_THAT(live.log, AllOf(HasSubstr("training"), HasSubstr("/1,000,000"),
                              HasSubstr("samples/s"), HasSubstr("compute ms")));
  EXPECT_THAT(Muster({"runs", Path("run")}).log, HasSubstr("running"));

  EXPECT_EQ(job->EndBy(SIGTERM, 30), 143);
  EXPECT_THAT(Muster({"top", Path("run")}).log, HasSubstr("interrupted"));
  EXPECT_THAT(Muster({"runs", Path("run")}).log, HasSubstr("interrupted"));
}

TEST_F(Watch, AStallSaysWhomItWaitsForBeforeADeadlineEndsIt) {
  // Otherwise its work would be reassigned.
  std::vector<std::string> settings = kLong;
  settings.push_back("cluster.on_lost_worker=ABORT");
  const std::unique_ptr<Process> job = Start("run", settings);
  ASSERT_TRUE(Reaches("run", 100));
  const pid_t worker = Find("run", 1);
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  const bool said = job->Says("has waited", 19);  // at deadlines.silence_s it would be lost
  EXPECT_THAT(job->Log(), AllOf(HasSubstr("from rank 1 ("), HasSubstr("the limit is ")));
  if (said) {
    EXPECT_TRUE(
        Eventually(10, [&] { return Status("run").find("has waited") != std::string::npos; }));
  }
  ASSERT_EQ(::kill(worker, SIGCONT), 0);
  EXPECT_TRUE(job->Says("the run continues after"));
  EXPECT_EQ(job->EndBy(SIGTERM, 30), 143);
}

TEST_F(Watch, TheDoctorSaysWhetherAConfigWouldRun) {
  const std::string smoke = ConfigPath("smoke.txtpb");
  const Outcome well = Succeeded(Muster({"doctor", smoke, "--workers", "1"}));
  EXPECT_THAT(well.log, AllOf(HasSubstr("libdnnl.so."), HasSubstr("Runs will work")));
  const std::string cifar = ConfigPath("cifar10.txtpb");
  const Outcome ill = Muster({"doctor", cifar, "--data", Path("nowhere")});
  EXPECT_EQ(ill.exit_code, 1);
  EXPECT_THAT(ill.log, AllOf(HasSubstr("WRONG  job's data"), HasSubstr("a run would fail")));
  EXPECT_EQ(Muster({"doctor", Path("no-config")}).exit_code, 2);
}

}  // namespace watch_test
}  // namespace muster::testing
