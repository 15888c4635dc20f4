// Jobs in which a process fails. The launcher reports it, ends in time with the right code, and
// leaves no process behind.
#include <gmock/gmock-matchers.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

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
    EXPECT_LT(finished.seconds, kStopSeconds + 1);  // plus the time before the failure
    EXPECT_TRUE(NoProcessLeft(0));
    return finished;
  }
};

TEST_F(JobFailureTest, AWorkerIsKilled) {
  Server(running_ + "until:dead;" +
         R"(report:{"failure":{"what":"rank 1 was lost","exit_code":7,"rank":1}};exit:7)");
  Worker(0, "gone:dead");
  Worker(1, "until:running;say:first words;say:last words;sleep:0.1;touch:dead;signal:9");
  Finished finished = ExpectFailure(6);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("muster: error: rank 1 (pid "),
                    HasSubstr("was killed by SIGKILL at step 57 of 3,910"),
                    HasSubstr("the server reports: rank 1 was lost"),
                    HasSubstr("    | first words\n    | last words\n"), HasSubstr("worker-1.log")));
}

TEST_F(JobFailureTest, AWorkerCrashesAfterTheRunIsComplete) {
  Server(running_ + kSummary + "touch:done;exit:0");
  Worker(0, "until:done;exit:0");
  Worker(1, "until:done;signal:11");
  Finished finished = ExpectFailure(6);
  EXPECT_THAT(finished.out, HasSubstr("71.32 %"));  // the result is still printed
  EXPECT_THAT(finished.err, HasSubstr("rank 1"));
}

TEST_F(JobFailureTest, AWorkerFailsBeforeItJoins) {
  Server(std::string(kListen) +
         R"(on-term:{"summary":{"end":"INTERRUPTED","steps":0,"at":{"elapsed_s":1}}};touch:up)");
  Worker(1, "until:up;say:12:00 worker-1 error: /nowhere: no data set;exit:3");
  Finished finished = ExpectFailure(3);
  EXPECT_THAT(finished.err, AllOf(HasSubstr("rank 1 (pid "),
                                  HasSubstr("failed with exit code 3: /nowhere: no data set\n")));
  EXPECT_THAT(finished.out, Not(HasSubstr("Ended early")));
}

// A program in place of srun runs in a Slurm job of two nodes.
class SrunJobTest : public JobFailureTest {
 protected:
  SrunJobTest() {
    for (const auto& [variable, value] :
         std::map<std::string, std::string>{{"SLURM_JOB_ID", "42"},
                                            {"SLURM_JOB_NUM_NODES", "2"},
                                            {"SLURM_JOB_CPUS_PER_NODE", "1(x2)"},
                                            {"PATH", Path("bin") + ":/usr/bin:/bin"}}) {
      SetVariable(variable, value);
    }
  }
  void Srun(const std::string& script) {
    std::filesystem::create_directory(Path("bin"));
    std::ofstream(Path("bin/srun")) << "#!/bin/sh\ncd " << Path("run") << "\n" << script << "\n";
    std::filesystem::permissions(Path("bin/srun"), std::filesystem::perms::owner_all);
  }
};

TEST_F(SrunJobTest, TheFirstWorkerThatSaysWhyIsNamed) {
  Srun(
      "echo '12:00 worker-0 error: exit code 7: the server stopped the run' >worker-0.log\n"
      "echo '12:00 worker-1 error: exit code 3: /nowhere: no data set' >worker-1.log\n"
      "echo 'srun: error: n2: task 1: Exited with exit code 3' >&2\n"
      "exit 3");
  Server(std::string(kListen) +
         R"(on-term:{"summary":{"end":"INTERRUPTED","steps":0,"at":{"elapsed_s":1}}})");
  const Finished finished = ExpectFailure(3, {"--run-dir", Path("run")});
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("failed with exit code 3: rank 1: /nowhere: no data set\n"),
                    HasSubstr("run/worker-1.log:\n"), Not(HasSubstr("Exited with"))));
}

TEST_F(SrunJobTest, OtherwiseSrunIsNamed) {
  Srun("echo 'srun: error: no such node' >&2; exit 1");
  Server(std::string(kListen) +
         R"(on-term:{"summary":{"end":"INTERRUPTED","steps":0,"at":{"elapsed_s":1}}})");
  EXPECT_THAT(ExpectFailure(1, {"--run-dir", Path("run")}).err,
              AllOf(HasSubstr("srun: error: no such node\n"), HasSubstr("run/srun.log:\n")));
}

TEST_F(SrunJobTest, AWorkerThatNeverStartedHasNoLog) {
  Srun("while [ ! -e " + Path("done") + " ]; do sleep 0.05; done");
  Server(running_ + kSummary + "touch:" + Path("done") + ";exit:0");
  const Finished finished = RunLaunch({"--run-dir", Path("run")});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, Not(HasSubstr("worker-")));
}

TEST_F(JobFailureTest, OnlyTheLastLinesOfTheLogAreShown) {
  std::string words;
  for (int i = 1; i <= 30; ++i) words += "say:line " + std::to_string(i) + ";";
  Server(words + "say:\x1b[31mred;exit:1");
  Finished finished = ExpectFailure(1);
  EXPECT_THAT(finished.err, AllOf(Not(HasSubstr("line 21\n")), HasSubstr("| line 22\n"),
                                  HasSubstr("|  [31mred\n")));
}

// As while a build replaces the programs.
class NotForNowTest : public JobFailureTest {
 protected:
  // Starts a job that loses its server, whose program is away then.
  void LoseServerAndProgram(Job& job) {
    Server(running_ + "until:" + Path("away") + ";signal:9");
    Launch(job);
    ASSERT_TRUE(Appears("running"));
    std::filesystem::rename(Path("muster-server"), Path("away"));
    ASSERT_TRUE(job.Says("muster-server: No such file or directory; trying again in"));
  }
};

TEST_F(NotForNowTest, TheNextServerIsTriedAgain) {
  Job job;
  LoseServerAndProgram(job);
  std::filesystem::create_hard_link(Path("away"), Path("muster-server"));
  const Finished finished = job.Finish(30);  // the next servers are killed as well
  EXPECT_EQ(finished.exit_code, 6);
  EXPECT_THAT(finished.out, AllOf(HasSubstr("Warning: cannot restart: cannot execute "),
                                  HasSubstr("(restart 2 of at most")));
}

TEST_F(NotForNowTest, AStopDoesNotWaitForIt) {
  Job job;
  LoseServerAndProgram(job);
  job.Signal(SIGINT);
  const Finished finished = job.Finish(5);
  EXPECT_EQ(finished.exit_code, 130);
  EXPECT_THAT(finished.out, HasSubstr("Stopped by SIGINT"));
  EXPECT_TRUE(NoProcessLeft(0));
}

TEST_F(JobFailureTest, WhatAChildHasForkedGoesWithIt) {
  Server(running_ + "gone:dead");
  Worker(0, "fork:;gone:dead");
  Worker(1, "until:running;touch:dead;exit:1");
  ExpectFailure(1);
}

}  // namespace
}  // namespace muster::testing
