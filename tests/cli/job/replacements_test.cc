// A worker that ends during a run: whether it is replaced, and how often.
#include <gmock/gmock-matchers.h>

#include "cli/job/summary.h"
#include "tests/cli/job/supervisor_fixture.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ReplacementsTest : public SupervisorTest {
 protected:
  ReplacementsTest() { cluster_.set_on_lost_worker(config::Cluster::REPLACE); }

  void IsKilled(int rank) { Ends(rank, {.by_signal = true, .value = SIGKILL}); }
};

TEST_F(ReplacementsTest, AKilledWorkerIsReplacedAndTheJobGoesOn) {
  Running();
  IsKilled(1);
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
  EXPECT_THAT(Said(), HasSubstr("Warning: rank 1 (pid 102) was killed by SIGKILL; unless"));
  Pass(5);
  EXPECT_THAT(Sent(), IsEmpty());
  Completed();
  for (const int rank : {0, 1, kServer}) Exits(rank, 0);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
  EXPECT_EQ(Outcome().ends.at(102), "killed by SIGKILL");
}

TEST_F(ReplacementsTest, OneThatTheServerDroppedIsReplaced) {
  Running();
  Exits(0, ExitCode::kPeerFailed);
  EXPECT_THAT(members_.replaced_, ElementsAre(0));
  EXPECT_THAT(Said(), HasSubstr("Warning: rank 0 (pid 101) failed with exit code 7"));
}

// It is suspended or disconnected, and does not end by itself.
TEST_F(ReplacementsTest, OneThatTheServerHasLostAndThatRunsIsKilledFirst) {
  Running();
  Changed(events::MemberChange::LOST, 1);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair(1, SIGKILL)));
  EXPECT_THAT(members_.replaced_, IsEmpty());
  Ends(1, {.by_signal = true, .value = SIGKILL, .asked = true});
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
  EXPECT_EQ(Outcome().ends.at(102), "") << "the server reports why it lost the worker";
}

// The run completes before the lost worker ends, so its exit code does not matter.
TEST_F(ReplacementsTest, OneThatWasLostDoesNotSpoilTheEnd) {
  Running();
  Changed(events::MemberChange::LOST, 1);
  Completed();
  EXPECT_THAT(Sent(), ElementsAre(std::pair(1, SIGKILL)));
  Exits(1, ExitCode::kPeerFailed);  // once resumed, it finds that the server is gone
  for (const int rank : {0, kServer}) Exits(rank, 0);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

TEST_F(ReplacementsTest, OneThatWasLostDoesNotSpoilTheWritingOfTheWeights) {
  Running();
  Changed(events::MemberChange::LOST, 1);
  Saving();
  Exits(1, ExitCode::kPeerFailed);
  Completed();
  for (const int rank : {0, kServer}) Exits(rank, 0);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

// It would keep looking for the server.
TEST_F(ReplacementsTest, OneThatHasNotJoinedWhenTheRunIsCompleteIsKilled) {
  Running();
  IsKilled(1);
  Completed();
  EXPECT_THAT(Sent(), ElementsAre(std::pair(1, SIGKILL)));
}

TEST_F(ReplacementsTest, OneThatHasJoinedEndsByItself) {
  Running();
  IsKilled(1);
  Changed(events::MemberChange::JOINED, 1);
  Completed();
  EXPECT_THAT(Sent(), IsEmpty());
}

// The server names it among the workers that the run begins with.
TEST_F(ReplacementsTest, OneThatHasJoinedBeforeTheStartEndsByItself) {
  for (const bool joined : {true, false}) {
    Anew();
    Listening();
    IsKilled(1);
    EXPECT_THAT(members_.replaced_, ElementsAre(1));
    events::Event event;
    for (uint32_t rank = 0; rank < (joined ? 2 : 1); ++rank) {
      events::Started::Worker& worker = *event.mutable_started()->add_workers();
      worker.set_rank(rank);
      worker.set_pid(101 + rank);
    }
    Tell(event);
    AtStep(5);
    Completed();
    EXPECT_EQ(Sent().size(), joined ? 0u : 1u);
  }
}

TEST_F(ReplacementsTest, OneOnALostHostIsNotReplaced) {
  cluster_.set_max_restarts(0);
  Running();
  members_.on_lost_host_ = 1;
  ends_with_host_ = "b";
  Exits(1, ExitCode::kProcessDied);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  EXPECT_THAT(Said(), Not(HasSubstr("rank 1"))) << "the host has been named before";
  Pass(5);
  EXPECT_THAT(Sent(), IsEmpty());
  Completed();
  for (const int rank : {0, kServer}) Exits(rank, 0);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
  EXPECT_EQ(Outcome().ends.at(102), "") << "the server reports why it lost the worker";
}

TEST_F(ReplacementsTest, AHostLostAtTheStartEndsTheJob) {
  Listening();
  members_.on_lost_host_ = 1;
  ends_with_host_ = "b";
  Exits(1, ExitCode::kProcessDied);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
  EXPECT_EQ(Outcome().failure->what, "rank 1 on b: words of 1");
}

TEST_F(ReplacementsTest, AWorkersOwnErrorIsToldEvenIfItsHostIsLost) {
  Running();
  members_.on_lost_host_ = 1;
  Exits(1, ExitCode::kFailure);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  EXPECT_THAT(Said(), HasSubstr("rank 1 (pid 102) failed with exit code 1"));
}

TEST_F(ReplacementsTest, WorkersOfTwoHostsMayHaveTheSamePid) {
  members_.same_pid_ = true;
  Running();
  events::Event event;
  event.mutable_member_change()->set_kind(events::MemberChange::LOST);
  event.mutable_member_change()->set_rank(1);
  event.mutable_member_change()->set_pid(101);
  Tell(event);
  Pass(2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair(1, SIGKILL)));
}

// A new process may have the PID of one that has ended.
TEST_F(ReplacementsTest, OneWithThePidOfALostOneIsAnother) {
  Running();
  Changed(events::MemberChange::LOST, 1);
  Exits(1, ExitCode::kPeerFailed);
  Changed(events::MemberChange::JOINED, 1);
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
  Exits(1, 0);
  EXPECT_EQ(members_.replaced_.size(), 1u) << "the run may be ending";
  Changed(events::MemberChange::LOST, 1);
  EXPECT_EQ(members_.replaced_.size(), 2u);
  Changed(events::MemberChange::JOINED, 1);
  Changed(events::MemberChange::LOST, 1);
  Pass(2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair(1, SIGKILL)));
}

TEST_F(ReplacementsTest, OneThatLeftIsNot) {
  Running();
  Changed(events::MemberChange::LEFT, 1);
  Exits(1, 0);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  Pass(15);
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(ReplacementsTest, WithContinueNobodyIs) {
  cluster_.set_on_lost_worker(config::Cluster::CONTINUE);
  Running();
  IsKilled(1);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  EXPECT_THAT(Sent(), IsEmpty());
}

// It did not leave properly, so it counts as lost, whichever event arrives first.
TEST_F(ReplacementsTest, OneThatEndsWithExitCode0InTheMiddleIsReplaced) {
  for (const bool lost_first : {false, true}) {
    Anew();
    Running();
    if (lost_first) Changed(events::MemberChange::LOST, 1);
    Exits(1, 0);
    EXPECT_EQ(members_.replaced_.size(), lost_first ? 1u : 0u) << "the run may be ending";
    if (!lost_first) Changed(events::MemberChange::LOST, 1);
    EXPECT_THAT(members_.replaced_, ElementsAre(1));
    Changed(events::MemberChange::JOINED, 1);
    for (int i = 0; i < 15; ++i) {
      Pass(1);
      Beat();
    }
    EXPECT_THAT(Sent(), IsEmpty());
    EXPECT_THAT(members_.replaced_, ElementsAre(1));
    Completed();
    for (const int rank : {0, 1, kServer}) Exits(rank, 0);
    EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
    EXPECT_EQ(Outcome().ends.at(102), "ended with exit code 0");
  }
  EXPECT_THAT(Said(), HasSubstr("Warning: rank 1 (pid 102) ended with exit code 0 before the"));
}

TEST_F(ReplacementsTest, OneThatEndsWithExitCode0AndTheServerSaysNothingIsReplacedLater) {
  Running();
  Exits(1, 0);
  for (int i = 0; i < 9; ++i) {
    Pass(1);
    Beat();
  }
  EXPECT_THAT(members_.replaced_, IsEmpty());
  Pass(1.1);
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
  EXPECT_THAT(Sent(), IsEmpty());
  EXPECT_GT(supervisor_->next_check(), now_);
}

TEST_F(ReplacementsTest, WithContinueOneThatEndsWithExitCode0IsGivenUp) {
  cluster_.set_on_lost_worker(config::Cluster::CONTINUE);
  Running();
  Exits(1, 0);
  Changed(events::MemberChange::LOST, 1);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  Completed();
  for (const int rank : {0, kServer}) Exits(rank, 0);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

TEST_F(ReplacementsTest, OneThatEndsWithExitCode0BeforeTheFirstStepEndsTheJob) {
  Listening();
  Started();
  Exits(1, 0);
  Changed(events::MemberChange::LOST, 1);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
  EXPECT_EQ(Outcome().log_path, "log of 1");
}

// The server rejected it because only the last files remain to be written.
TEST_F(ReplacementsTest, OneThatCameTooLateForTheRunIsNotReplacedAgain) {
  Running();
  IsKilled(1);
  Exits(1, 0);
  Saving();
  Completed();
  for (const int rank : {0, kServer}) Exits(rank, 0);
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

TEST_F(ReplacementsTest, WhatAnyProcessWouldRunIntoEndsTheJob) {
  Listening();
  Exits(1, ExitCode::kData);
  Pass(3);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kData);
}

// For example, too little GPU memory or a missing library: each replacement would fail as well.
TEST_F(ReplacementsTest, OneThatFailsBeforeTheFirstStepEndsTheJobInItsWords) {
  for (const bool joined : {false, true}) {
    Anew();
    Listening();
    if (joined) Started();
    Exits(1, ExitCode::kFailure);
    EXPECT_THAT(members_.replaced_, IsEmpty());
    EXPECT_EQ(Outcome().exit_code, ExitCode::kFailure);
    EXPECT_THAT(Outcome().failure->what, HasSubstr("words of 1"));
  }
}

TEST_F(ReplacementsTest, OneThatFailsLaterIsReplaced) {
  Running();
  Exits(1, ExitCode::kFailure);
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
}

// For example, because a build replaces the program for a moment.
TEST_F(ReplacementsTest, OneThatCannotBeStartedIsTriedAgainLaterAndLater) {
  cluster_.set_max_restarts(1);
  Running();
  members_.not_for_now_ = true;
  IsKilled(1);
  Pass(3.5);
  EXPECT_THAT(Said(), AllOf(HasSubstr("Warning: cannot replace rank 1: no such program; trying"),
                            HasSubstr("again in 1.0 s"), HasSubstr("again in 2.0 s"),
                            HasSubstr("again in 4.0 s")));
  members_.not_for_now_ = false;
  EXPECT_THAT(members_.replaced_, IsEmpty());
  Pass(4);
  EXPECT_THAT(members_.replaced_, ElementsAre(1));
  EXPECT_THAT(Sent(), IsEmpty());
  Completed();
  for (const int rank : {0, 1, kServer}) Exits(rank, 0);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

TEST_F(ReplacementsTest, OneThatAnotherHostCannotStartIsTriedAgain) {
  const std::vector<EndedProcess> not_started{{.rank = 1, .not_started = "no such program on b"}};
  Running();
  IsKilled(1);
  members_.Gone(1);
  supervisor_->OnEnds(not_started, now_);
  EXPECT_THAT(Said(), HasSubstr("Warning: cannot replace rank 1: no such program on b; trying"));
  Pass(1.1);
  EXPECT_THAT(members_.replaced_, ElementsAre(1, 1));
  EXPECT_THAT(Sent(), IsEmpty());
  Anew();  // nothing is lost yet
  Listening();
  supervisor_->OnEnds(not_started, now_);
  EXPECT_EQ(Outcome().failure->what, "no such program on b");
  EXPECT_TRUE(Outcome().could_not_start);
}

// For example, because it gets no threads, or because its script is being replaced: all
// replacements would fail within a second.
TEST_F(ReplacementsTest, OneThatFailsBeforeItJoinsIsReplacedLaterAndIsNoFurtherLoss) {
  cluster_.set_max_restarts(1);
  Running();
  IsKilled(1);
  size_t replaced = 1;
  double pause = 1;
  for (const ChildEnd& end :
       {ChildEnd{.value = 2}, {.value = 134}, {.by_signal = true, .value = SIGBUS}}) {
    Ends(1, end);
    EXPECT_EQ(members_.replaced_.size(), replaced) << end.value << ": replaced immediately";
    EXPECT_THAT(Said(), HasSubstr("cannot replace rank 1: it ended before it joined"));
    Pass(pause + 0.1);
    EXPECT_EQ(members_.replaced_.size(), ++replaced) << end.value;
    pause *= 2;
  }
  EXPECT_THAT(Sent(), IsEmpty());
  Changed(events::MemberChange::JOINED, 1);
  Ends(1, {.value = 2});
  EXPECT_EQ(Outcome().exit_code, ExitCode::kUsage) << "it has worked";
}

TEST_F(ReplacementsTest, OneThatFailsWhenNoOtherWorksIsALoss) {
  Running();
  IsKilled(0);
  IsKilled(1);
  Exits(1, ExitCode::kUsage);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kUsage);
}

// The launcher's child is a shell, which the program does not replace.
TEST_F(ReplacementsTest, AProgramThatHasJoinedFromAChildIsALossWhenItFails) {
  cluster_.set_max_restarts(1);
  Running();
  IsKilled(1);
  events::Event joined;
  joined.mutable_member_change()->set_kind(events::MemberChange::JOINED);
  joined.mutable_member_change()->set_rank(1);
  joined.mutable_member_change()->set_pid(4711);
  Tell(joined);
  Exits(1, ExitCode::kFailure);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kFailure) << "the second loss";
}

TEST_F(ReplacementsTest, WithContinueTheOthersBeginWithoutOneThatFails) {
  cluster_.set_on_lost_worker(config::Cluster::CONTINUE);
  Listening();
  Exits(1, ExitCode::kFailure);
  EXPECT_THAT(Sent(), IsEmpty());
  Started();
  EXPECT_THAT(members_.replaced_, IsEmpty());
}

TEST_F(ReplacementsTest, NobodyIsWhileTheServerEnds) {
  Running();
  Saving();
  Exits(1, ExitCode::kPeerFailed);
  EXPECT_THAT(members_.replaced_, IsEmpty());
}

// Over ZeroMQ the server notices a loss slightly later than the launcher.
TEST_F(ReplacementsTest, OneThatIsRefusedAtFirstIsNoFurtherLoss) {
  cluster_.set_max_restarts(1);
  Running();
  IsKilled(1);
  for (int i = 0; i < 3; ++i) {
    Exits(1, ExitCode::kRefused);
    EXPECT_EQ(members_.replaced_.size(), i + 1u) << "replaced immediately";
    Pass(1);
    EXPECT_EQ(members_.replaced_.size(), i + 2u);
  }
  EXPECT_THAT(Sent(), IsEmpty());
  Completed();
  for (const int rank : {0, 1, kServer}) Exits(rank, 0);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

TEST_F(ReplacementsTest, SoItIsBeforeTheStart) {
  Listening();
  IsKilled(0);
  Exits(0, ExitCode::kRefused);
  Pass(1);
  EXPECT_THAT(members_.replaced_, ElementsAre(0, 0));
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(ReplacementsTest, OneThatIsRefusedForeverEndsTheJobInItsWords) {
  config_.mutable_deadlines()->set_silence_s(5);
  Running();
  IsKilled(1);
  for (int i = 0; i < 12 && Sent().empty(); ++i) {
    Exits(1, ExitCode::kRefused);
    Beat();
    Pass(1);
  }
  EXPECT_LT(members_.replaced_.size(), 12u);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kRefused);
  EXPECT_THAT(Outcome().failure->what, HasSubstr("words of 1"));
}

TEST_F(ReplacementsTest, NoFirstWorkerMayBeRefused) {
  Listening();
  Exits(1, ExitCode::kRefused);
  Pass(3);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kRefused);
}

TEST_F(ReplacementsTest, NobodyIsStartedAgainWhenTheRunIsComplete) {
  Running();
  IsKilled(1);
  Exits(1, ExitCode::kRefused);
  Completed();
  Pass(3);
  EXPECT_EQ(members_.replaced_.size(), 1u);
  EXPECT_GT(supervisor_->next_check(), now_) << "no check should be due";
}

TEST_F(ReplacementsTest, OneThatIsKilledWhenAllIsDoneIsNoLoss) {
  Running();
  Saving();
  IsKilled(1);
  EXPECT_THAT(Said(), HasSubstr("rank 1 (pid 102) was killed by SIGKILL after its last step"));
  Completed();
  IsKilled(0);
  EXPECT_THAT(members_.replaced_, IsEmpty());
  Exits(kServer, 0);
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
}

// It was suspended during the last steps.
TEST_F(ReplacementsTest, OneThatComesTooLateForTheEndIsNoLoss) {
  for (const ExitCode code : {ExitCode::kDeadline, ExitCode::kPeerFailed}) {
    Anew();
    Running();
    Completed();
    for (const int rank : {0, kServer}) Exits(rank, 0);
    Exits(1, code);
    EXPECT_THAT(Said(),
                HasSubstr("rank 1 (pid 102) lost the server (exit code " +
                          std::to_string(static_cast<int>(code)) + ") after its last step"));
    EXPECT_EQ(Outcome().exit_code, ExitCode::kOk);
  }
}

TEST_F(ReplacementsTest, OneThatCrashesWhenAllIsDoneIsAFailure) {
  Running();
  Saving();
  Ends(1, {.by_signal = true, .value = SIGSEGV});
  Completed();
  Exits(0, 0);
  Exits(kServer, 0);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
}

// The server knows the slice; the launcher only saw a process end.
TEST_F(ReplacementsTest, WhatTheServerSaysOfALossThatEndsTheRunCounts) {
  for (const bool told_first : {true, false}) {
    SCOPED_TRACE(told_first);
    const char* const what = "slice 3 of step 7 killed 3 workers";
    Anew();
    Running();
    if (told_first) ServerFails(what, 7, 1);
    IsKilled(1);
    if (!told_first) ServerFails(what, 7, 1);
    Exits(kServer, ExitCode::kPeerFailed);
    EXPECT_EQ(Outcome().failure->what, what);
    EXPECT_EQ(Outcome().exit_code, ExitCode::kPeerFailed);
  }
}

// Old losses do not count.
TEST_F(ReplacementsTest, TooManyInAWindowEndTheJobAndAreCounted) {
  cluster_.set_max_restarts(2);
  cluster_.set_restart_window_s(100);
  config_.mutable_deadlines()->set_silence_s(1000);
  Running();
  const auto is_replaced = [&](int rank) {
    IsKilled(rank);
    Changed(events::MemberChange::JOINED, static_cast<uint32_t>(rank));
  };
  is_replaced(1);
  is_replaced(0);
  Pass(101);
  is_replaced(1);
  is_replaced(1);
  EXPECT_THAT(members_.replaced_, ElementsAre(1, 0, 1, 1));
  IsKilled(0);
  EXPECT_EQ(members_.replaced_.size(), 4u);
  Pass(10);
  EXPECT_EQ(Outcome().exit_code, ExitCode::kProcessDied);
  EXPECT_THAT(Outcome().failure->what,
              AllOf(HasSubstr("rank 0 (pid 101)"), HasSubstr("more than 2 workers"),
                    HasSubstr("cluster.max_restarts")));
}

// A relay's end takes all of its workers with it.
TEST_F(ReplacementsTest, VictimsOfOneFailureAreOneLoss) {
  cluster_.set_max_restarts(1);
  Running();
  Exits(0, ExitCode::kPeerFailed);
  Exits(1, ExitCode::kPeerFailed);
  EXPECT_THAT(members_.replaced_, ElementsAre(0, 1));
  Pass(6);
  Exits(0, ExitCode::kPeerFailed);
  EXPECT_EQ(members_.replaced_.size(), 2u) << "a second failure";
}

TEST(ChangesTexts, NameTheFirstOnesAndHowTheyEnded) {
  events::Summary summary;
  const auto add = [&](events::MemberChange::Kind kind, uint32_t rank, int64_t pid, int64_t step) {
    events::MemberChange& change = *summary.add_changes();
    change.set_kind(kind);
    change.set_rank(rank);
    change.set_pid(pid);
    change.mutable_at()->set_step(step);
    change.set_why("its connection ended");
  };
  EXPECT_THAT(ChangesTexts(summary, {}), IsEmpty());
  add(events::MemberChange::LOST, 1, 42, 120);
  summary.set_workers_lost(1);
  EXPECT_THAT(ChangesTexts(summary, {}),
              ElementsAre("1 worker lost (rank 1, step 120: its connection ended)"));
  add(events::MemberChange::JOINED, 1, 43, 124);
  summary.set_workers_joined(1);
  EXPECT_THAT(ChangesTexts(summary, {{42, "killed by SIGKILL"}}),
              ElementsAre("1 worker lost and replaced (rank 1, step 120: killed by SIGKILL)"));
  EXPECT_THAT(ChangesTexts(summary, {{42, ""}}),
              ElementsAre("1 worker lost and replaced (rank 1, step 120: its connection ended)"));
  // A worker that joins in addition replaces none.
  add(events::MemberChange::JOINED, 2, 44, 130);
  add(events::MemberChange::LOST, 0, 45, 140);
  summary.set_workers_lost(2);
  summary.set_workers_joined(2);
  EXPECT_THAT(ChangesTexts(summary, {}),
              ElementsAre("2 workers lost, some replaced (rank 1, step 120: its connection "
                          "ended; rank 0, step 140: its connection ended)"));
}

}  // namespace
}  // namespace muster
