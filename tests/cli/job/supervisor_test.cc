// The supervisor's decisions in a successful run, and at deadlines.
#include "tests/cli/job/supervisor_fixture.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---------------------------------------------------------------------------------- a good run

TEST_F(SupervisorTest, ARunThatGoesWell) {
  EXPECT_EQ(members_.size(), 1u);
  Listening("tcp://here:1");
  EXPECT_EQ(members_.endpoint_, "tcp://here:1");
  EXPECT_EQ(members_.size(), 3u);
  Started();
  EXPECT_FALSE(Over());
  Completed();
  Exits(0, 0);
  Exits(1, 0);
  EXPECT_FALSE(Over());
  Exits(kServer, 0);
  EXPECT_TRUE(Over());
  const JobOutcome outcome = Outcome();
  EXPECT_EQ(outcome.exit_code, ExitCode::kOk);
  EXPECT_FALSE(outcome.failure);
  EXPECT_EQ(outcome.summary->steps(), 10);
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(SupervisorTest, WorkersAreStartedOnce) {
  Listening("");
  EXPECT_EQ(members_.endpoint_, "planned");  // if the server names none
  Listening("elsewhere");
  EXPECT_EQ(members_.endpoint_, "planned");
  EXPECT_EQ(members_.size(), 3u);
}

TEST_F(SupervisorTest, AWorkerMayEndBeforeTheServerSaysThatTheRunIsComplete) {
  Running();
  Exits(0, 0);
  Pass(9);
  Beat();
  Completed();
  Pass(5);  // longer than the server's time to explain it
  Exits(1, 0);
  Exits(kServer, 0);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

// A large model on a slow disk.
TEST_F(SupervisorTest, AServerThatWritesTheWeightsMayTakeItsTime) {
  Running();
  Saving();
  Exits(0, 0);
  Exits(1, 0);
  for (int i = 0; i < 60; ++i) {
    Pass(1);
    Saving();
  }
  Completed();
  Exits(kServer, 0);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(SupervisorTest, WritingTheWeightsEndsAtSomeTime) {
  Running();
  Saving();
  Exits(0, 0);
  for (int i = 0; i < 310 && !Over(); ++i) {
    Pass(1);
    Saving();
  }
  EXPECT_THAT(Sent(), ::testing::Contains(std::pair(kServer, SIGKILL)));
  EXPECT_THAT(Outcome().failure->what, HasSubstr("did not write the weights within"));
}

TEST_F(SupervisorTest, ALongRunThatReportsIsLeftAlone) {
  Running();
  for (int i = 0; i < 1000; ++i) {
    Pass(1);
    Beat();
  }
  EXPECT_FALSE(Over());
  EXPECT_THAT(Sent(), IsEmpty());
}

// ---------------------------------------------------------------------------------- deadlines

TEST_F(SupervisorTest, TheServerMustListenInTime) {
  Pass(59.9);
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_NEAR(supervisor_->next_check(), 1060, 1e-6);
  Pass(0.2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}));
  Ends(kServer, {.by_signal = true, .value = SIGTERM, .asked = true});
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kDeadline);
  EXPECT_EQ(Outcome().failure->what,
            "server (pid 100) did not start to listen within 60 s (deadlines.start_s)");
  EXPECT_EQ(Outcome().log_path, "log of -1");
}

// The server's own deadline comes first. This one is for a server without a deadline.
TEST_F(SupervisorTest, TheWorkersMustJoinInTime) {
  Listening();
  events::Event waiting;
  waiting.mutable_waiting()->add_missing(1);
  for (int i = 0; i < 74; ++i) {
    Pass(1);
    Tell(waiting);
  }
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(1.1);
  EXPECT_EQ(Sent(), ToAll(SIGTERM));
  EXPECT_EQ(members_.failures_told_, 1) << "the server must know that this was not requested";
  EXPECT_THAT(Outcome().failure->what, HasSubstr("did not start within 60 s"));
  EXPECT_THAT(Outcome().failure->what, HasSubstr("missing: rank 1"));
}

TEST_F(SupervisorTest, AServerThatSaysNothingIsGivenUp) {
  Running();
  Pass(22.9);
  EXPECT_THAT(Sent(), IsEmpty());
  members_.Stop(kServer);
  Pass(0.3);
  EXPECT_THAT(Outcome().failure->what,
              AllOf(HasSubstr("server (pid 100) has been silent for 23"),
                    HasSubstr(" at step 5 of 10; it is stopped (SIGSTOP?)")));
  EXPECT_EQ(Outcome().exit_code, ExitCode::kDeadline);
}

TEST_F(SupervisorTest, AWorkerThatEndsTooEarlyIsAFailure) {
  Running();
  Exits(1, 0);
  for (int i = 0; i < 9; ++i) {
    Pass(1);
    Beat();
  }
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(1.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{0, SIGTERM}));
  EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
  EXPECT_EQ(Outcome().failure->what,
            "rank 1 (pid 102) ended at step 5 of 10 with exit code 0 before the job was complete");
  EXPECT_EQ(Outcome().log_path, "log of 1");
  EXPECT_GT(supervisor_->next_check(), now_);  // no deadline remains
}

TEST_F(SupervisorTest, AServerThatEndsTooEarlyIsAFailureAtOnce) {
  Running();
  Exits(kServer, 0);
  Pass(0.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{0, SIGTERM}, std::pair{1, SIGTERM}));
  EXPECT_THAT(Outcome().failure->what, HasSubstr("server (pid 100) ended at step 5 of 10"));
}

TEST_F(SupervisorTest, AProcessThatDoesNotEndAfterTheRunIsKilled) {
  Running();
  Completed();
  Exits(kServer, 0);
  Exits(0, 0);
  members_.Stop(1);
  Pass(9.9);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{1, SIGKILL}));
  EXPECT_FALSE(Over());
  Ends(1, {.by_signal = true, .value = SIGKILL, .asked = true});
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
  EXPECT_EQ(Outcome().summary->steps(), 10);
}

TEST_F(SupervisorTest, AProcessThatCannotBeKilledAfterTheRunIsLeftAlone) {
  Running();
  Completed();
  Exits(kServer, 0);
  Exits(0, 0);
  Pass(10.1);
  EXPECT_FALSE(Over());
  Pass(10.1);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

}  // namespace
}  // namespace muster
