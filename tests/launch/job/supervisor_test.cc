// What the supervisor decides, told by hand what happens and when: members that are no processes,
// and a clock that is a number.
#include "launch/job/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <utility>

#include "common/base/unique_fd.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeMembers : public Members {
 public:
  explicit FakeMembers(int workers) : workers_(workers) { Add(); }

  void StartWorkers(const std::string& endpoint) override {
    endpoint_ = endpoint;
    for (int i = 0; i < workers_ && i != cannot_start_; ++i) Add();
    if (cannot_start_ >= 0) throw Error(ExitCode::kFailure, "no such program");
  }
  size_t size() const override { return states_.size(); }
  int rank(size_t member) const override { return static_cast<int>(member) - 1; }
  pid_t pid(size_t member) const override { return 100 + static_cast<pid_t>(member); }
  bool running(size_t member) const override { return states_[member].running; }
  bool stopped(size_t member) const override {
    return states_[member].running && states_[member].stopped;
  }
  void Signal(size_t member, int signal) override {
    if (states_[member].running) sent_.emplace_back(rank(member), signal);
  }
  std::string LastWords(int rank) const override { return "words of " + std::to_string(rank); }
  std::string LogPath(int rank) const override { return "log of " + std::to_string(rank); }

  void Stop(int rank) { states_[static_cast<size_t>(rank) + 1].stopped = true; }
  void Gone(int rank) { states_[static_cast<size_t>(rank) + 1].running = false; }

  const int workers_;
  int cannot_start_ = -1;
  std::string endpoint_;
  std::vector<std::pair<int, int>> sent_;  // rank, signal

 private:
  struct State {
    bool running = true, stopped = false;
  };
  void Add() { states_.emplace_back(); }
  std::vector<State> states_;
};

// Two workers; the clock begins at 1,000 s. Verbs move it on and tell the supervisor.
class SupervisorTest : public ::testing::Test {
 protected:
  static constexpr int kServer = -1;

  SupervisorTest() {
    plan_.dir = nullptr;
    plan_.workers = 2;
    plan_.endpoint = "planned";
    plan_.start_s = 60;
    plan_.silence_s = 20;
  }

  void Tell(const events::Event& event) { supervisor_.OnEvent(event, now_); }
  void Listening(const std::string& endpoint = "here") {
    events::Event event;
    event.mutable_listening()->set_endpoint(endpoint);
    Tell(event);
  }
  void Started() {
    events::Event event;
    event.mutable_started()->set_total_steps(10);
    Tell(event);
  }
  void AtStep(int64_t step) {
    events::Event event;
    event.mutable_progress()->mutable_at()->set_step(step);
    Tell(event);
  }
  void Beat() {
    events::Event event;
    event.mutable_beat();
    Tell(event);
  }
  void Saving() {
    events::Event event;
    event.mutable_saving();
    Tell(event);
  }
  void Completed() {
    events::Event event;
    event.mutable_summary()->set_end(events::Summary::COMPLETED);
    event.mutable_summary()->set_steps(10);
    Tell(event);
  }
  void ServerFails(const std::string& what, int exit_code, std::optional<uint32_t> rank = {}) {
    events::Event event;
    event.mutable_failure()->set_what(what);
    event.mutable_failure()->set_exit_code(exit_code);
    if (rank) event.mutable_failure()->set_rank(*rank);
    Tell(event);
  }
  void Running() {
    Listening();
    Started();
    AtStep(5);
  }

  void Ends(int rank, ChildEnd end) {
    members_.Gone(rank);
    supervisor_.OnEnds({{rank, 101 + rank, end}}, now_);
  }
  void Exits(int rank, int code) { Ends(rank, {.value = code}); }
  void Signalled(int number, bool from_terminal = false) {
    supervisor_.OnSignal({number, from_terminal}, now_);
    supervisor_.Check(now_);
  }
  // Time passes in which nothing happens, in looks of a tenth of a second.
  void Pass(double seconds) {
    for (const double end = now_ + seconds; now_ < end - 1e-9;) {
      now_ = std::min(end, now_ + 0.1);
      supervisor_.Check(now_);
    }
  }
  // Everything that was sent since the last call.
  std::vector<std::pair<int, int>> Sent() { return std::exchange(members_.sent_, {}); }
  bool Over() const { return supervisor_.Over(now_); }
  JobOutcome Outcome() const { return supervisor_.Outcome(); }

  static std::vector<std::pair<int, int>> ToAll(int signal) {
    return {{kServer, signal}, {0, signal}, {1, signal}};
  }

  double now_ = 1000;
  JobPlan plan_;
  FakeMembers members_{2};
  UniqueFd null_{::open("/dev/null", O_WRONLY | O_CLOEXEC)};
  Console console_{null_.get()};
  JobDisplay display_{console_, 60};
  Supervisor supervisor_{plan_, members_, display_, now_};
};

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
  EXPECT_EQ(members_.endpoint_, "planned");  // where the server names none
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
  Pass(5);  // longer than the server had left to explain it
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

TEST_F(SupervisorTest, WhoStopsAJobGetsItsWeights) {
  Running();
  Signalled(SIGINT, true);
  EXPECT_THAT(Sent(), ElementsAre(std::pair(kServer, SIGTERM)));
  Saving();
  for (int i = 0; i < 30; ++i) {
    Pass(1);
    Saving();
  }
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(5);  // not a word: it hangs
  EXPECT_THAT(Sent(), ::testing::Contains(std::pair(kServer, SIGKILL)));
}

TEST_F(SupervisorTest, WhoInsistsDoesNotWaitForTheWeights) {
  Running();
  Signalled(SIGINT, true);
  Saving();
  Pass(2.5);
  Sent();
  Signalled(SIGINT, true);
  Saving();
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
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
  EXPECT_NEAR(supervisor_.next_check(), 1060, 1e-6);
  Pass(0.2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}));
  Ends(kServer, {.by_signal = true, .value = SIGTERM, .asked = true});
  EXPECT_TRUE(Over());
  EXPECT_EQ(Outcome().exit_code, ExitCode::kDeadline);
  EXPECT_EQ(Outcome().failure->what,
            "server (pid 100) did not say where it listens within 60 s (deadlines.start_s)");
  EXPECT_EQ(Outcome().log_path, "log of -1");
}

// The server's own deadline comes first; this is for a server that has none.
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
            "rank 1 (pid 102) ended at step 5 of 10 before the job did, with exit code 0");
  EXPECT_EQ(Outcome().log_path, "log of 1");
  EXPECT_GT(supervisor_.next_check(), now_);  // nobody waits in vain for what is over
}

TEST_F(SupervisorTest, AServerThatEndsTooEarlyIsAFailureAtOnce) {
  Running();
  Exits(kServer, 0);
  Pass(0.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{0, SIGTERM}, std::pair{1, SIGTERM}));
  EXPECT_THAT(Outcome().failure->what, HasSubstr("server (pid 100) ended at step 5 of 10"));
}

TEST_F(SupervisorTest, AProcessThatDoesNotEndAfterTheRunIsNamed) {
  Running();
  Completed();
  Exits(kServer, 0);
  Exits(0, 0);
  members_.Stop(1);
  Pass(9.9);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  EXPECT_THAT(Outcome().failure->what,
              AllOf(HasSubstr("the run is complete, but rank 1 (pid 102) did not end within 10 s"),
                    HasSubstr("it is stopped")));
  EXPECT_EQ(Outcome().summary->steps(), 10);  // the result stands
}

// ---------------------------------------------------------------------------------- failures

TEST_F(SupervisorTest, TheOthersMayNoticeAFailureThemselves) {
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

TEST_F(SupervisorTest, WhoDoesNotEndIsAskedThenKilledThenLeft) {
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

TEST_F(SupervisorTest, BeforeTheStartTheGraceIsShort) {
  Listening();
  Exits(0, 3);
  Pass(0.4);
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{1, SIGTERM}));
}

TEST_F(SupervisorTest, AStoppedMemberIsToldAtOnce) {
  Running();
  members_.Stop(1);
  Exits(0, 3);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{1, SIGTERM}));
}

TEST_F(SupervisorTest, TheServersWordsOnAFailureThatItFound) {
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

TEST_F(SupervisorTest, OnlyTheFirstFailureCounts) {
  Running();
  ServerFails("first", 4);
  ServerFails("second", 5);
  Exits(kServer, 4);
  EXPECT_EQ(Outcome().failure->what, "first");
}

TEST_F(SupervisorTest, WorkersThatCannotBeStarted) {
  members_.cannot_start_ = 1;
  Listening();
  Pass(0.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{0, SIGTERM}));
  EXPECT_EQ(Outcome().failure->what, "no such program");
  EXPECT_EQ(Outcome().log_path, "");
}

TEST_F(SupervisorTest, ACrashAfterTheRunIsStillAFailure) {
  Running();
  Completed();
  Ends(1, {.by_signal = true, .value = SIGSEGV});
  Exits(0, 0);
  Exits(kServer, 0);
  EXPECT_TRUE(Over());
  EXPECT_THAT(Outcome().failure->what, HasSubstr("rank 1 (pid 102) crashed with SIGSEGV"));
}

// ---------------------------------------------------------------------------------- requests

TEST_F(SupervisorTest, ARequestStopsTheServerFirst) {
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
  EXPECT_FALSE(Outcome().failure);
}

TEST_F(SupervisorTest, AServerThatWritesTheStateIsWaitedFor) {
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

// Before the server listens the signal would end it.
TEST_F(SupervisorTest, ACheckpointIsAskedForOnceTheServerListens) {
  supervisor_.AskForCheckpoint();
  EXPECT_THAT(Sent(), IsEmpty());
  Running();
  supervisor_.AskForCheckpoint();
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGUSR1}));
}

TEST_F(SupervisorTest, OnceTheServerIsGoneTheWorkersFollow) {
  Running();
  Signalled(SIGINT);
  Sent();
  Exits(kServer, 130);
  Pass(0.1);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{0, SIGTERM}, std::pair{1, SIGTERM}));
  EXPECT_EQ(Outcome().exit_code, ExitCode::kInterrupted);
}

TEST_F(SupervisorTest, ASecondRequestKills) {
  Running();
  Signalled(SIGINT);
  Sent();
  Pass(0.1);
  Signalled(SIGINT);  // the same one once more
  EXPECT_THAT(Sent(), IsEmpty());
  Pass(0.2);
  Signalled(SIGHUP);  // the terminal goes away, too
  EXPECT_THAT(Sent(), IsEmpty());
  Signalled(SIGINT);
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
}

TEST_F(SupervisorTest, TwoKeystrokesAreTwoRequestsHoweverFast) {
  Running();
  Signalled(SIGINT, true);
  Sent();
  Signalled(SIGINT, true);
  EXPECT_EQ(Sent(), ToAll(SIGKILL));
}

TEST_F(SupervisorTest, ARequestAfterAFailureEndsTheGrace) {
  Running();
  Exits(0, 3);
  Pass(0.5);
  Signalled(SIGINT);
  EXPECT_THAT(Sent(), ElementsAre(std::pair{kServer, SIGTERM}, std::pair{1, SIGTERM}));
  EXPECT_EQ(Outcome().exit_code, ExitCode::kData);  // the failure came first
}

}  // namespace
}  // namespace muster
