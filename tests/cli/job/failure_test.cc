#include "cli/job/failure.h"

#include <gtest/gtest.h>

#include <csignal>

namespace muster {
namespace {

constexpr int kServer = -1;

EndedProcess Exited(int rank, int code, bool asked = false) {
  return {.rank = rank, .pid = 100 + rank, .end = {.value = code, .asked = asked}};
}
EndedProcess Killed(int rank, int signal, bool asked = false) {
  return {
      .rank = rank, .pid = 100 + rank, .end = {.by_signal = true, .value = signal, .asked = asked}};
}

TEST(FindCauseTest, VictimsAreNoCause) {
  EXPECT_EQ(FindCause({Exited(kServer, 7), Exited(0, 7)}, -1), std::nullopt);
  EXPECT_EQ(FindCause({Exited(kServer, 7), Exited(0, 7), Killed(1, SIGKILL)}, -1), 2u);
  EXPECT_EQ(FindCause({}, -1), std::nullopt);
}

TEST(FindCauseTest, TheFirstOneCounts) {
  EXPECT_EQ(FindCause({Exited(1, 3), Killed(0, SIGSEGV)}, -1), 0u);
  EXPECT_EQ(FindCause({Killed(0, SIGSEGV), Exited(1, 3)}, -1), 0u);
}

TEST(FindCauseTest, WhatWasAskedForIsNoCause) {
  EXPECT_EQ(FindCause({Killed(0, SIGTERM, true), Exited(kServer, 143, true)}, -1), std::nullopt);
  EXPECT_EQ(FindCause({Killed(0, SIGKILL, true), Exited(1, 1)}, -1), 1u);
}

TEST(FindCauseTest, TheServersAccusationSettlesTies) {
  EXPECT_EQ(FindCause({Killed(0, SIGKILL), Killed(1, SIGKILL)}, 1), 1u);
  EXPECT_EQ(FindCause({Exited(0, 0), Exited(kServer, 5)}, 0), 0u);
  // An accused worker may be only a victim. The server's own error is the cause, for example if
  // this worker's loss was not finite.
  EXPECT_EQ(FindCause({Exited(1, 7), Exited(kServer, 4)}, 1), 1u);
}

TEST(SignalOfServerTest, OnlyOneThatNobodySent) {
  EXPECT_EQ(SignalOfServer({Killed(-1, SIGKILL)}), SIGKILL);
  EXPECT_EQ(SignalOfServer({Exited(0, 7), Killed(1, SIGTERM, true), Killed(-1, SIGABRT)}), SIGABRT);
  EXPECT_EQ(SignalOfServer({Killed(-1, SIGKILL, true)}), std::nullopt);
  EXPECT_EQ(SignalOfServer({Killed(0, SIGKILL), Exited(-1, 7)}), std::nullopt);
  EXPECT_EQ(SignalOfServer({}), std::nullopt);
}

TEST(DescribeEndTest, SaysWhoAndWhat) {
  EXPECT_EQ(DescribeEnd(Killed(1, SIGSEGV), " at step 57 of 3,910"),
            "rank 1 (pid 101) crashed with SIGSEGV at step 57 of 3,910");
  EXPECT_EQ(DescribeEnd(Killed(kServer, SIGTERM), ""), "server (pid 99) was killed by SIGTERM");
  EXPECT_EQ(DescribeEnd(Exited(0, 3), ""),
            "rank 0 (pid 100) failed with exit code 3: a data file is missing, truncated or "
            "invalid, or no checkpoint is intact");
  EXPECT_EQ(DescribeEnd(Exited(0, 77), ""),
            "rank 0 (pid 100) failed with exit code 77: not an exit code of Muster");
  EXPECT_NE(DescribeEnd(Killed(0, SIGKILL), "").find("out of memory"), std::string::npos);
}

TEST(DescribeEndTest, AProgramThatNeverAskedForWorkTrainedAlone) {
  EndedProcess plain = Exited(0, 0);
  const std::string joined = DescribeEnd(plain, "");
  plain.never_asked = true;
  EXPECT_EQ(joined.find("muster.torch"), std::string::npos);
  EXPECT_NE(DescribeEnd(plain, "").find("muster.torch"), std::string::npos);
}

// Nothing suspicious was observed.
const Observed kNothing;

TEST(FindFailureCauseTest, ServersWordsWhereTheServerFoundIt) {
  const JobFailure report{.code = ExitCode::kPeerFailed, .rank = 1, .what = "rank 1 was silent"};
  auto silent = [](int) { return std::string(); };
  FailureCause judgement = FindFailureCause({Exited(kServer, 7), Killed(1, SIGKILL, true)},
                                            kNothing, report, "", silent);
  EXPECT_EQ(judgement.failure.what, "rank 1 was silent");
  EXPECT_EQ(judgement.failure.code, ExitCode::kPeerFailed);
  EXPECT_EQ(judgement.failure.rank, 1u);
  EXPECT_TRUE(judgement.in_server_words);

  judgement =
      FindFailureCause({Exited(kServer, 7), Killed(1, SIGSEGV)}, kNothing, report, "", silent);
  EXPECT_EQ(judgement.failure.what, "rank 1 (pid 101) crashed with SIGSEGV");
  EXPECT_EQ(judgement.failure.code, ExitCode::kProcessDied);

  EXPECT_EQ(FindFailureCause({}, kNothing, {}, "", silent).failure.code, ExitCode::kFailure);
  EXPECT_EQ(
      FindFailureCause({Exited(0, 7), Exited(kServer, 7)}, kNothing, {}, "", silent).failure.rank,
      0u);
}

// A worker that timed out waiting for a stuck server is not to blame, whatever it reports.
TEST(FindFailureCauseTest, AStuckServerIsNamed) {
  const auto words = [](int) { return std::string("the server has been silent"); };
  const auto judge = [&](const std::vector<EndedProcess>& ended, const Observed& observed,
                         const std::optional<JobFailure>& report = {}) {
    return FindFailureCause(ended, observed, report, " at step 5", words);
  };
  const Observed stopped{
      .stopped = {{kServer, 99}, {1, 101}}, .server_pid = 99, .server_silent_s = 21};
  for (const int code : {5, 7}) {
    const FailureCause judgement = judge({Exited(0, code)}, stopped);
    EXPECT_EQ(judgement.failure.what,
              "server (pid 99) has been silent for 21 s at step 5; it is stopped (SIGSTOP?), and "
              "so is rank 1");
    EXPECT_EQ(judgement.failure.code, ExitCode::kDeadline);
    EXPECT_EQ(judgement.failure.rank, std::nullopt);
  }
  EXPECT_EQ(judge({Exited(0, 5)}, {.server_pid = 99, .server_silent_s = 21}).failure.what,
            "server (pid 99) has been silent for 21 s at step 5");
  EXPECT_EQ(judge({Exited(0, 7)}, {.stopped = {{kServer, 99}}, .server_pid = 99}).failure.what,
            "server (pid 99) is stopped (SIGSTOP?) at step 5");
  // A crash is a sufficient cause, and another kind of timeout is the worker's own.
  EXPECT_EQ(judge({Killed(0, SIGSEGV)}, stopped).failure.code, ExitCode::kProcessDied);
  EXPECT_EQ(judge({Exited(0, 5)}, {.stopped = {{1, 101}}, .server_pid = 99}).failure.what,
            "rank 0 (pid 100) failed at step 5 with exit code 5: the server has been silent");
}

TEST(FindFailureCauseTest, AStoppedWorkerRanIntoADeadline) {
  const JobFailure report{.code = ExitCode::kPeerFailed, .rank = 1, .what = "rank 1 was lost"};
  const FailureCause judgement = FindFailureCause({Exited(kServer, 7), Killed(1, SIGTERM, true)},
                                                  {.stopped = {{1, 101}}, .server_pid = 99}, report,
                                                  "", [](int) { return std::string(); });
  EXPECT_EQ(judgement.failure.what, "rank 1 was lost; rank 1 (pid 101) is stopped (SIGSTOP?)");
  EXPECT_EQ(judgement.failure.code, ExitCode::kDeadline);
}

TEST(FindFailureCauseTest, AProcesssOwnWordsOnItsExit) {
  FailureCause judgement =
      FindFailureCause({Exited(0, 3)}, kNothing, {}, " at step 2",
                       [](int rank) { return "no data " + std::to_string(rank); });
  EXPECT_EQ(judgement.failure.what,
            "rank 0 (pid 100) failed at step 2 with exit code 3: no data 0");
}

TEST(FailureOfTest, TakesWhatTheServerReports) {
  events::Failure reported;
  reported.set_what("out of luck");
  EXPECT_EQ(FailureOf(reported).code, ExitCode::kFailure);  // without an exit code
  EXPECT_EQ(FailureOf(reported).rank, std::nullopt);
  reported.set_exit_code(4);
  reported.set_rank(0);
  EXPECT_EQ(FailureOf(reported).code, ExitCode::kNonfinite);
  EXPECT_EQ(FailureOf(reported).rank, 0u);
  EXPECT_EQ(FailureOf(reported).what, "out of luck");
  for (const int code : {77, 1000}) {
    reported.set_exit_code(code);
    EXPECT_EQ(FailureOf(reported).code, ExitCode::kProcessDied) << code;
  }
}

TEST(CodeOfTest, KnownCodesPassThrough) {
  EXPECT_EQ(CodeOf(Exited(0, 3).end), ExitCode::kData);
  EXPECT_EQ(CodeOf(Exited(0, 77).end), ExitCode::kProcessDied);
  EXPECT_EQ(CodeOf(Exited(0, 143).end), ExitCode::kProcessDied);
  EXPECT_EQ(CodeOf(Exited(0, 0).end), ExitCode::kProcessDied);
  EXPECT_EQ(CodeOf(Killed(0, SIGKILL).end), ExitCode::kProcessDied);
}

}  // namespace
}  // namespace muster
