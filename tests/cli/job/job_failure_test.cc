// Jobs in which a process fails: the launcher names it and ends with the right code, in time, and
// leaves nothing behind.
#include <gmock/gmock-matchers.h>

#include <csignal>

#include "tests/cli/job/job_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kStopSeconds = 5;

class JobFailureTest : public JobTest {
 protected:
  JobFailureTest() { Workers(""); }
  const std::string running_ = std::string(kListen) + kStarted + kProgress + "touch:running;";

  Finished ExpectFailure(int exit_code, const std::vector<std::string>& more = {}) {
    Finished finished = RunLaunch(more);
    EXPECT_EQ(finished.exit_code, exit_code) << finished.err;
    EXPECT_LT(finished.seconds, kStopSeconds + 1);  // and what it took to get there
    EXPECT_TRUE(NoProcessLeft(0));
    return finished;
  }
};

TEST_F(JobFailureTest, AWorkerIsKilled) {
  Server(running_ + "gone:dead");
  Worker(0, "gone:dead");
  Worker(1, "until:running;say:first words;say:last words;sleep:0.1;touch:dead;signal:9");
  Finished finished = ExpectFailure(6);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("muster: error: rank 1 (pid "),
                    HasSubstr("was killed by SIGKILL at step 57 of 3,910"),
                    HasSubstr("    | first words\n    | last words\n"), HasSubstr("worker-1.log")));
  EXPECT_LT(finished.seconds, 2);  // the others went by themselves: no grace was waited for
}

TEST_F(JobFailureTest, AWorkerCrashesAndTheOthersHang) {
  Server(running_);
  Worker(1, "until:running;sleep:0.1;signal:11");
  Finished finished = ExpectFailure(6);
  EXPECT_THAT(finished.err, HasSubstr("crashed with SIGSEGV at step 57"));
}

TEST_F(JobFailureTest, TheOthersHangAndIgnoreSigterm) {
  Server("ignore:15;" + running_);
  Worker(0, "ignore:15;");
  Worker(1, "until:running;exit:3");
  Finished finished = ExpectFailure(3);
  EXPECT_THAT(finished.err, HasSubstr("failed at step 57 of 3,910 with exit code 3: a data file"));
}

TEST_F(JobFailureTest, TheServerIsKilled) {
  Server(running_ + "say:server's words;touch:dead;signal:9");
  Workers("gone:dead");
  Finished finished = ExpectFailure(6);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("server (pid "), HasSubstr("was killed by SIGKILL"),
                                  HasSubstr("| server's words"), HasSubstr("server.log")));
}

TEST_F(JobFailureTest, TheServersReportIsShown) {
  Server(running_ +
         R"(report:{"failure":{"what":"rank 1 sent a loss that is not finite at step 57",)"
         R"("exit_code":4,"rank":1}};touch:dead;exit:4)");
  Worker(0, "gone:dead");
  Worker(1, "say:the accused;gone:dead");
  Finished finished = ExpectFailure(4);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("muster: error: rank 1 sent a loss that is not finite at step 57\n"),
                    HasSubstr("| the accused")));
}

TEST_F(JobFailureTest, TheReportOnALostWorkerDoesNotHideHowItEnded) {
  Server(running_ + "until:dead;" +
         R"(report:{"failure":{"what":"rank 1 was lost","exit_code":7,"rank":1}};exit:7)");
  Worker(0, "gone:dead");
  Worker(1, "until:running;sleep:0.1;touch:dead;signal:6");
  Finished finished = ExpectFailure(6);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("crashed with SIGABRT"),
                                  HasSubstr("the server says: rank 1 was lost")));
}

TEST_F(JobFailureTest, TheFirstFailureWins) {
  Server(running_ + "until:dead;sleep:0.3;exit:1");
  Worker(0, "until:dead;sleep:0.2;signal:11");
  Worker(1, "until:running;touch:dead;exit:3");
  Finished finished = ExpectFailure(3);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("rank 1"), Not(HasSubstr("SIGSEGV"))));
}

TEST_F(JobFailureTest, OnlyVictims) {
  Server(running_ + "exit:7");
  Workers("until:running;exit:7");
  EXPECT_THAT(ExpectFailure(7).err, HasSubstr("exit code 7: another process of the job failed"));
}

TEST_F(JobFailureTest, AWorkerEndsWithSuccessTooEarly) {
  Server(running_ + "until:dead;" +
         R"(report:{"failure":{"what":"rank 0 was lost","exit_code":7,"rank":0}};exit:7)");
  Worker(0, "until:running;touch:dead;exit:0");
  Worker(1, "gone:dead");
  EXPECT_THAT(ExpectFailure(6).err,
              AllOf(HasSubstr("rank 0 (pid "), HasSubstr("before the job did, with exit code 0")));
}

TEST_F(JobFailureTest, TheServerEndsWithSuccessTooEarly) {
  Server(running_ + "exit:0");
  EXPECT_THAT(ExpectFailure(6).err,
              AllOf(HasSubstr("server (pid "), HasSubstr("before the job did, with exit code 0")));
}

TEST_F(JobFailureTest, AWorkerCrashesAfterTheRunIsComplete) {
  Server(running_ + kSummary + "touch:done;exit:0");
  Worker(0, "until:done;exit:0");
  Worker(1, "until:done;signal:11");
  Finished finished = ExpectFailure(6);
  EXPECT_THAT(finished.out, HasSubstr("71.32 %"));  // the result stands
  EXPECT_THAT(finished.err, HasSubstr("rank 1"));
}

TEST_F(JobFailureTest, TheServerDoesNotListenInTime) {
  Server("say:thinking");
  Finished finished = ExpectFailure(5, {"--set", "deadlines.start_s=0.3"});
  EXPECT_THAT(finished.err, AllOf(HasSubstr("did not say where it listens within 0.3 s"),
                                  HasSubstr("| thinking")));
}

TEST_F(JobFailureTest, TheServerFailsBeforeItListens) {
  Server("say:12:00 server error: exit code 3: no data;exit:3");
  EXPECT_THAT(ExpectFailure(3).err, AllOf(HasSubstr("failed with exit code 3: no data\n"),
                                          HasSubstr("| 12:00 server error:")));
}

TEST_F(JobFailureTest, AWorkerFailsBeforeItJoins) {
  Server(std::string(kListen) +
         R"(on-term:{"summary":{"end":"INTERRUPTED","steps":0,"at":{"elapsed_s":1}}};touch:up)");
  Worker(1, "until:up;say:12:00 worker-1 error: /nowhere: no data set;exit:3");
  Finished finished = ExpectFailure(3);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("rank 1 (pid "),
                                  HasSubstr("failed with exit code 3: /nowhere: no data set\n")));
  EXPECT_THAT(finished.out, Not(HasSubstr("Ended early")));
  EXPECT_LT(finished.seconds, 2.4);  // nobody had joined: a short grace is enough
}

TEST_F(JobFailureTest, OnlyTheLastLinesOfTheLogAreShown) {
  std::string words;
  for (int i = 1; i <= 30; ++i) words += "say:line " + std::to_string(i) + ";";
  Server(words + "say:\x1b[31mred;exit:1");
  Finished finished = ExpectFailure(1);
  EXPECT_THAT(finished.err, AllOf(Not(HasSubstr("line 21\n")), HasSubstr("| line 22\n"),
                                  HasSubstr("|  [31mred\n")));
}

TEST_F(JobFailureTest, WhatAChildHasForkedGoesWithIt) {
  Server(running_ + "gone:dead");
  Worker(0, "fork:;gone:dead");
  Worker(1, "until:running;touch:dead;exit:1");
  ExpectFailure(1);
}

TEST_F(JobFailureTest, AStoppedProcessDoesNotHoldTheOthersUp) {
  Server(running_ + "gone:dead");
  Worker(0, "until:running;signal:19");
  Worker(1, "until:running;sleep:0.2;touch:dead;exit:1");
  ExpectFailure(1);
}

}  // namespace
}  // namespace muster::testing
