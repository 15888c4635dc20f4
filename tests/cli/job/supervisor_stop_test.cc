// The supervisor's decisions when a run ends early, after a failure or a request.
#include "tests/cli/job/supervisor_fixture.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// ---------------------------------------------------------------------------------- failures

class SupervisorStopTest : public SupervisorTest {};

TEST_F(SupervisorStopTest, TheOthersMayNoticeAFailureThemselves) {
  Running();
  Ends(1, {.by_signal = true, .value = SIGKILL});
  Pass(2.4);
  EXPECT_THAT(Sent(), IsEmpty());
  ServerFails("rank 1 was lost", 7, 1);
  Exits(kServer, 7);
  Exits(0, 7);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
  EXPECT_THAT(Outcome().failure->what, HasSubstr("rank 1 (pid 102) was killed by SIGKILL"));
  EXPECT_EQ(Outcome().server_said, "rank 1 was lost");
  EXPECT_EQ(Outcome().log_path, "log of 1");
}

TEST_F(SupervisorStopTest, WhoDoesNotEndIsAskedThenKilledThenLeft) {
  Running();
  Exits(0, 3);
  Pass(2.6);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{1, SIGTERM}));
  Pass(1.3);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGKILL}, std::pair{1, SIGKILL}));
  Pass(4.8);
  EXPECT_FALSE(Over());
  Pass(0.3);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kData);
  EXPECT_THAT(Outcome().failure->what, HasSubstr("with exit code 3: words of 0"));
}

TEST_F(SupervisorStopTest, BeforeTheStartTheGraceIsShort) {
  Listening();
  Exits(0, 3);
  Pass(0.4);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{1, SIGTERM}));
}

TEST_F(SupervisorStopTest, AStoppedMemberIsToldAtOnce) {
  Running();
  members_.Stop(1);
  Exits(0, 3);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{1, SIGTERM}));
}

TEST_F(SupervisorStopTest, TheServersWordsOnAFailureThatItFound) {
  Running();
  ServerFails("the loss of slice 3 is nan", 4, 0);
  Exits(kServer, 4);
  Exits(0, 7);
  Exits(1, 7);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kNonfinite);
  EXPECT_EQ(Outcome().failure->what, "the loss of slice 3 is nan");
  EXPECT_EQ(Outcome().server_said, "");
  EXPECT_EQ(Outcome().log_path, "log of 0");
}

// ---------------------------------------------------------------------------- a lost server

TEST_F(SupervisorStopTest, ALostServerEndsTheOthersSoon) {
  Running();
  Ends(kServer, {.by_signal = true, .value = SIGKILL});
  Pass(0.3);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{0, SIGTERM}, std::pair{1, SIGTERM}));
  Exits(0, 7);
  Pass(0.4);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{1, SIGKILL}));
  Ends(1, {.by_signal = true, .value = SIGKILL, .asked = true});
  EXPECT_TRUE(Over());
  ASSERT_TRUE(Outcome().lost_server);
  EXPECT_EQ(Outcome().lost_server->cause, "signal 9");
  EXPECT_EQ(Outcome().lost_server->step, 5);
  EXPECT_EQ(Outcome().lost_server->at, 1000);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
}

TEST_F(SupervisorStopTest, TheSummaryHasWorkersThatWereLostUnderEarlierServers) {
  cluster_.set_on_lost_worker(config::Cluster::REPLACE);
  Running();
  Changed(events::MemberChange::LOST, 1);
  Ends(1, {.by_signal = true, .value = SIGKILL});
  Changed(events::MemberChange::JOINED, 1);
  Ends(kServer, {.by_signal = true, .value = SIGKILL});
  plan_.changes = Outcome().changes;
  plan_.ends = Outcome().ends;

  Supervisor next(plan_, members_, display_, now_);
  events::Event event;
  event.mutable_member_change()->set_kind(events::MemberChange::LOST);
  next.OnEvent(event, now_);
  event.mutable_summary()->set_workers_lost(1);
  next.OnEvent(event, now_);
  const JobOutcome outcome = next.Outcome();
  ASSERT_TRUE(outcome.summary);
  EXPECT_EQ(outcome.summary->changes_size(), 3);
  EXPECT_EQ(outcome.summary->workers_lost(), 2);
  EXPECT_EQ(outcome.summary->workers_joined(), 1);
  EXPECT_EQ(outcome.ends.at(102), "killed by SIGKILL");
}

TEST_F(SupervisorStopTest, ASilentServerIsLost) {
  Running();
  members_.Stop(kServer);
  Pass(23.2);
  for (const int rank : {kServer, 0, 1}) {
    Ends(rank, {.by_signal = true, .value = SIGKILL, .asked = true});
  }
  ASSERT_TRUE(Outcome().lost_server);
  EXPECT_EQ(Outcome().lost_server->cause, "silent");
}

// The workers reach their own deadline slightly earlier.
TEST_F(SupervisorStopTest, AStoppedServerThatItsWorkersGiveUpIsLost) {
  Running();
  members_.Stop(kServer);
  Pass(20);
  Exits(0, 5);
  Exits(1, 5);
  Pass(2.6);
  Ends(kServer, {.by_signal = true, .value = SIGKILL, .asked = true});
  ASSERT_TRUE(Outcome().lost_server);
  EXPECT_EQ(Outcome().lost_server->cause, "silent");
}

// This does not depend on how many workers give up, nor on the limit of replacements.
TEST_F(SupervisorStopTest, WorkersThatGiveUpAStoppedServerAreNotCountedAsLost) {
  cluster_.set_on_lost_worker(config::Cluster::REPLACE);
  cluster_.set_max_restarts(1);
  Running();
  members_.Stop(kServer);
  Pass(20);
  Exits(0, 5);
  Exits(1, 5);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  Pass(4);
  Ends(kServer, {.by_signal = true, .value = SIGKILL, .asked = true});
  ASSERT_TRUE(Outcome().lost_server);
  EXPECT_EQ(Outcome().lost_server->cause, "silent");
}

TEST_F(SupervisorStopTest, WorkersThatGiveUpAServerThatSpeaksAgainAreReplaced) {
  cluster_.set_on_lost_worker(config::Cluster::REPLACE);
  Running();
  members_.Stop(kServer);
  Pass(20);
  Exits(1, 5);
  Beat();
  Pass(0.1);
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
  EXPECT_FALSE(Over());
}

TEST_F(SupervisorStopTest, WhatWouldHappenAgainIsNoLoss) {
  Running();
  Exits(kServer, 3);
  EXPECT_FALSE(Outcome().lost_server);
}

TEST_F(SupervisorStopTest, AServerThatHasReportedAFailureIsNotLost) {
  Running();
  ServerFails("the loss of slice 3 is nan", 4, 0);
  Ends(kServer, {.by_signal = true, .value = SIGKILL});
  EXPECT_FALSE(Outcome().lost_server);
}

TEST_F(SupervisorStopTest, WhoWantsTheRunToEndGetsNoOtherServer) {
  Running();
  Ends(kServer, {.by_signal = true, .value = SIGKILL});
  Signalled(SIGINT);
  Exits(0, 7);
  Exits(1, 7);
  EXPECT_FALSE(Outcome().lost_server);
}

TEST_F(SupervisorStopTest, OnlyTheFirstFailureCounts) {
  Running();
  ServerFails("first", 4);
  ServerFails("second", 5);
  Exits(kServer, 4);
  EXPECT_EQ(Outcome().failure->what, "first");
}

TEST_F(SupervisorStopTest, WorkersThatCannotBeStarted) {
  members_.cannot_start_ = 1;
  Listening();
  Pass(0.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{0, SIGTERM}));
  EXPECT_EQ(Outcome().failure->what, "no such program");
  EXPECT_EQ(Outcome().log_path, "");
}

TEST_F(SupervisorStopTest, ACrashAfterTheRunIsStillAFailure) {
  Running();
  Completed();
  Ends(1, {.by_signal = true, .value = SIGSEGV});
  Exits(0, 0);
  Exits(kServer, 0);
  EXPECT_TRUE(Over());
  EXPECT_THAT(Outcome().failure->what, HasSubstr("rank 1 (pid 102) crashed with SIGSEGV"));
}

// ---------------------------------------------------------------------------------- requests

TEST_F(SupervisorStopTest, ARequestStopsTheServerFirst) {
  Running();
  Signalled(SIGTERM);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}));
  Pass(1.9);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  EXPECT_EQ(Sent(), ToAll(SIGTERM));
  Pass(1.5);
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
  for (const int rank : {kServer, 0, 1}) Ends(rank, {.by_signal = true, .value = 9, .asked = true});
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kTerminated);
  EXPECT_EQ(Outcome().stop_signal, SIGTERM);
  EXPECT_EQ(members_.failures_told_, 0);
  EXPECT_FALSE(Outcome().failure);
}

TEST_F(SupervisorStopTest, AServerThatWritesTheStateIsWaitedFor) {
  Running();
  Signalled(SIGTERM);
  Sent();
  for (int second = 0; second < 10; ++second) {
    events::Event event;
    event.mutable_saving()->set_step(5);
    Tell(event);
    Pass(1);
  }
  EXPECT_THAT(Sent(), IsEmpty());
  Exits(kServer, 143);
  Pass(0.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{0, SIGTERM}, std::pair{1, SIGTERM}));
}

// Before the server listens, the signal would end it.
TEST_F(SupervisorStopTest, ACheckpointIsAskedForOnceTheServerListens) {
  supervisor_->AskForCheckpoint();
  EXPECT_THAT(Sent(), IsEmpty());
  Running();
  supervisor_->AskForCheckpoint();
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGUSR1}));
}

TEST_F(SupervisorStopTest, OnceTheServerIsGoneTheWorkersFollow) {
  Running();
  Signalled(SIGINT);
  Sent();
  Exits(kServer, 130);
  Pass(0.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{0, SIGTERM}, std::pair{1, SIGTERM}));
  EXPECT_EQ(Outcome().exit_code, ExitCode::kInterrupted);
}

// Reports that were on their way at Ctrl-C, and those of the server until it ends.
TEST_F(SupervisorStopTest, AfterARequestWhatTheRunHasReachedIsTold) {
  Running();
  Signalled(SIGINT);
  Changed(events::MemberChange::LOST, 1);
  Changed(events::MemberChange::JOINED, 1);
  events::Event warning;
  warning.mutable_warning()->set_message("the disk is full");
  Tell(warning);
  EXPECT_THAT(Said(), AllOf(HasSubstr("Lost rank 1"), HasSubstr("Joined: rank 1"),
                            HasSubstr("Warning: the disk is full")));
}

TEST_F(SupervisorStopTest, AfterAFailureNothingElseIsTold) {
  Running();
  ServerFails("the loss of slice 3 is nan", 4, 0);
  Changed(events::MemberChange::LOST, 1);
  Changed(events::MemberChange::JOINED, 1);
  Signalled(SIGINT);
  Exits(kServer, 4);
  EXPECT_THAT(Said(), AllOf(Not(HasSubstr("Lost rank")), Not(HasSubstr("Joined"))));
}

TEST_F(SupervisorStopTest, ASecondRequestKills) {
  Running();
  Signalled(SIGINT);
  Sent();
  Pass(0.1);
  Signalled(SIGINT);  // the same signal again
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  Signalled(SIGHUP);  // the terminal closes as well
  EXPECT_THAT(Sent(), IsEmpty());
  Signalled(SIGINT);
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
}

// Service managers send both signals to a session that ends, and shells send SIGHUP by themselves.
TEST_F(SupervisorStopTest, TheEndOfASessionIsOneRequest) {
  Running();
  Signalled(SIGHUP);
  Sent();
  Pass(1);
  Signalled(SIGTERM);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.3);
  Signalled(SIGTERM);
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
  EXPECT_EQ(Outcome().exit_code, ExitCode::kTerminated);
}

TEST_F(SupervisorStopTest, TwoKeystrokesAreTwoRequestsHoweverFast) {
  Running();
  Signalled(SIGINT, true);
  Sent();
  Signalled(SIGINT, true);
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
}

TEST_F(SupervisorStopTest, ARequestAfterAFailureEndsTheGrace) {
  Running();
  Exits(0, 3);
  Pass(0.5);
  Signalled(SIGINT);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{1, SIGTERM}));
  EXPECT_EQ(Outcome().exit_code, ExitCode::kData);  // the failure came first
}

TEST_F(SupervisorStopTest, WhoStopsAJobGetsItsWeights) {
  Running();
  Signalled(SIGINT, true);
  EXPECT_THAT(Sent(), ElementsAre(std::pair(kServer, SIGTERM)));
  Saving();
  for (int i = 0; i < 30; ++i) {
    Pass(1);
    Saving();
  }
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(5);  // no events: the server hangs
  EXPECT_THAT(Sent(), ::testing::Contains(std::pair(kServer, SIGKILL)));
}

TEST_F(SupervisorStopTest, WhoInsistsDoesNotWaitForTheWeights) {
  Running();
  Signalled(SIGINT, true);
  Saving();
  Pass(2.5);
  Sent();
  Signalled(SIGINT, true);
  Saving();
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
}

// ------------------------------------------------------------------ a server that writes

// The time of the final kill if the server reports every second until `last` that it writes.
double KilledAt(StopStages& stages, double last) {
  for (int tenths = 0; tenths < 5000; ++tenths) {
    const double now = tenths / 10.0;
    if (tenths % 10 == 0 && now <= last) stages.WaitForServer(now);
    if (stages.Take(now, /*server_gone=*/false).kill_all) return now;
  }
  return kNever;
}

TEST(StopStagesTest, NobodyIsKilledWhileTheServerWrites) {
  StopStages silent, writing, stuck;
  silent.BeginWithServer(0);
  EXPECT_NEAR(KilledAt(silent, -1), 3.5, 0.11);
  writing.BeginWithServer(0);
  EXPECT_NEAR(KilledAt(writing, 20), 20 + 3 + 1.5, 0.11);
  stuck.BeginWithServer(0);
  const double most = KilledAt(stuck, 450);
  EXPECT_GT(most, 30);
  EXPECT_LT(most, 400);
}

TEST(StopStagesTest, AlsoAfterAFailure) {
  StopStages stages;
  stages.BeginAfterFailure(0, /*joined=*/true);
  EXPECT_NEAR(KilledAt(stages, 10), 10 + 3 + 1.5, 0.11);
}

TEST(StopStagesTest, ASecondRequestKillsAtOnce) {
  StopStages stages;
  stages.BeginWithServer(0);
  (void)stages.Take(0, false);
  stages.WaitForServer(1);
  stages.Kill(2);
  stages.WaitForServer(2);
  EXPECT_TRUE(stages.Take(2.1, false).kill_all);
}

}  // namespace
}  // namespace muster
