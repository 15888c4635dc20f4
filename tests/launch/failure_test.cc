#include "launch/failure.h"

#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

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
  // An accused worker that is only a victim is not the cause: the server's word is (it found, for
  // example, that this worker's loss was not finite).
  EXPECT_EQ(FindCause({Exited(1, 7), Exited(kServer, 4)}, 1), 1u);
}

TEST(DescribeEndTest, SaysWhoAndWhat) {
  EXPECT_EQ(DescribeEnd(Killed(1, SIGSEGV), " at step 57 of 3,910"),
            "rank 1 (pid 101) crashed with SIGSEGV at step 57 of 3,910");
  EXPECT_EQ(DescribeEnd(Killed(kServer, SIGTERM), ""), "server (pid 99) was killed by SIGTERM");
  EXPECT_EQ(DescribeEnd(Exited(0, 3), ""),
            "rank 0 (pid 100) failed with exit code 3: a data file is missing, truncated or "
            "foreign");
  EXPECT_EQ(DescribeEnd(Exited(0, 77), ""),
            "rank 0 (pid 100) failed with exit code 77: not an exit code of Muster");
  EXPECT_NE(DescribeEnd(Killed(0, SIGKILL), "").find("out of memory"), std::string::npos);
}

TEST(JudgeFailureTest, ServersWordsWhereTheServerFoundIt) {
  nlohmann::json report = {{"message", "rank 1 was silent"}, {"exit_code", 7}, {"rank", 1}};
  auto silent = [](int) { return std::string(); };
  Judgement judgement =
      JudgeFailure({Exited(kServer, 7), Killed(1, SIGKILL, true)}, report, "", silent);
  EXPECT_EQ(judgement.text, "rank 1 was silent");
  EXPECT_EQ(judgement.code, ExitCode::kPeerFailed);
  EXPECT_EQ(judgement.log_rank, 1);
  EXPECT_TRUE(judgement.in_server_words);

  judgement = JudgeFailure({Exited(kServer, 7), Killed(1, SIGSEGV)}, report, "", silent);
  EXPECT_EQ(judgement.text, "rank 1 (pid 101) crashed with SIGSEGV");
  EXPECT_EQ(judgement.code, ExitCode::kProcessDied);

  EXPECT_EQ(JudgeFailure({}, nullptr, "", silent).code, ExitCode::kFailure);
  EXPECT_EQ(JudgeFailure({Exited(0, 7), Exited(kServer, 7)}, nullptr, "", silent).log_rank, 0);
}

TEST(JudgeFailureTest, AProcesssOwnWordsOnItsExit) {
  Judgement judgement = JudgeFailure({Exited(0, 3)}, nullptr, " at step 2",
                                     [](int rank) { return "no data " + std::to_string(rank); });
  EXPECT_EQ(judgement.text, "rank 0 (pid 100) failed at step 2 with exit code 3: no data 0");
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
