// `muster launch` in jobs of a real Slurm with two nodes.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "common/base/text.h"
#include "tests/base/paths.h"
#include "tests/e2e/hand_job.h"
#include "tests/e2e/slurm_cluster.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kManyEpochs = "run.epochs=100000";

class Slurm : public HandJob {
 protected:
  void SetUp() override {
    if (const std::string why = SlurmCluster::WhyNot(); !why.empty()) GTEST_SKIP() << why;
    slurm_ = std::make_unique<SlurmCluster>();
    ASSERT_TRUE(slurm_->IsUp());
  }

  std::string LaunchLine(const Words& more) const {
    std::string line = fmt::format("exec {} launch {} --run-dir {}", BinPath("muster"),
                                   Path("config.txtpb").string(), Path("run").string());
    for (const std::string& word : more) line += " " + ShellWord(word);
    return line + "\n";
  }
  // Submits a launch with a worker on each node. Returns the job's number.
  std::string Submit(const Words& more) {
    return slurm_->Submit(
        {"-N2", "-n2", "--no-kill", "--requeue", "--open-mode=append", "-o", Path("run.log")},
        LaunchLine(more));
  }
  // The PID of the worker on node n2, or -1.
  pid_t SecondWorker() const {
    const std::vector<pid_t> found = slurm_->Find("--rank 1 --local-rank");
    return found.size() == 1 ? found[0] : -1;
  }
  static pid_t ParentOf(pid_t pid) {
    const std::string stat = Slurp(fmt::format("/proc/{}/stat", pid));
    pid_t parent = -1;
    (void)std::sscanf(stat.c_str() + stat.rfind(')'), ") %*c %d", &parent);
    return parent;
  }
  // Kills the daemon of node n2, and its part of the step, which is this worker's parent. Returns
  // when the worker is an orphan.
  void KillSecondNode(pid_t worker) const {
    const pid_t step = ParentOf(worker);
    for (const pid_t daemon : slurm_->Find("slurmd -D -N n2")) ::kill(daemon, SIGKILL);
    ::kill(step, SIGKILL);
    ASSERT_TRUE(Eventually(20, [&] { return ParentOf(worker) != step; }));
  }
  std::string JobLog() const { return Slurp(Path("run.log")); }
  // Expects a completed job, and weights with the bits of a launch on one host.
  void ExpectTheSameBits(const std::string& job, const std::vector<std::string>& settings) {
    ASSERT_TRUE(slurm_->Becomes(job, "COMPLETED")) << JobLog() << Slurp(Path("run/srun.log"));
    EXPECT_EQ(slurm_->JobField(job, "ExitCode"), "0:0");
    const Outcome here = Succeeded(Launch(settings));
    EXPECT_EQ(Metrics("run").back()["weights_hash"], here.hash());
  }

  std::unique_ptr<SlurmCluster> slurm_;
};

TEST_F(Slurm, OneSrunStartsTheWorkersOfAllNodes) {
  const std::string job = Submit({"--set", "cluster.transport=TCP"});
  ExpectTheSameBits(job, {});
  EXPECT_THAT(JobLog(), HasSubstr("2 workers on 2 nodes of Slurm job " + job));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(Slurp(Path(fmt::format("run/worker-{}.log", rank))),
                AllOf(HasSubstr(fmt::format("as worker {} (Slurm, SLURM_PROCID={}", rank, rank)),
                      HasSubstr("tcp://slurmhost:"), HasSubstr("over ZeroMQ")));
  }
  EXPECT_FALSE(std::filesystem::exists(Path("run/token")));
}

TEST_F(Slurm, ScancelLeavesNothing) {
  const std::string job = Submit({"--set", kManyEpochs});
  ASSERT_TRUE(Reaches("run", 3)) << JobLog();
  (void)slurm_->Run({"scancel", job});
  ASSERT_TRUE(slurm_->Becomes(job, "CANCELLED"));
  EXPECT_TRUE(NothingLeft(20));
  EXPECT_EQ(Metrics("run").back()["reason"], "interrupted") << JobLog();
  EXPECT_FALSE(Checkpoints("run").empty());
}

TEST_F(Slurm, ARequeuedJobGoesOn) {
  const std::vector<std::string> settings{"run.epochs=300", "evaluation.every_epochs=0",
                                          "checkpoint.every_steps=100000"};
  Words words;
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  const std::string job = Submit(words);
  ASSERT_TRUE(Reaches("run", 20)) << JobLog();
  ASSERT_TRUE(slurm_->Requeue(job));
  EXPECT_TRUE(NothingLeft(0));
  // That of the first weights, and that of the step at which it was stopped.
  EXPECT_EQ(Checkpoints("run").size(), 2u);
  slurm_->Restart(job);
  ExpectTheSameBits(job, settings);
  EXPECT_THAT(JobLog(), HasSubstr("  resumes "));
}

// --signal=B:USR1@60 gives a job a minute to save its state before the time limit.
TEST_F(Slurm, Usr1SavesTheStateAndEndsTheJob) {
  const std::string job = Submit({"--set", kManyEpochs});
  ASSERT_TRUE(Reaches("run", 3)) << JobLog();
  (void)slurm_->Run({"scancel", "--batch", "--signal=USR1", job});
  ASSERT_TRUE(slurm_->Becomes(job, "FAILED")) << JobLog();
  EXPECT_EQ(slurm_->JobField(job, "ExitCode"), "143:0");
  EXPECT_TRUE(NothingLeft(20));
  EXPECT_FALSE(Checkpoints("run").empty());
}

TEST_F(Slurm, ALostNode) {
  const std::vector<std::string> settings{"run.epochs=300", "evaluation.every_epochs=0"};
  const std::string job = Submit({"--set", settings[0], "--set", settings[1]});
  ASSERT_TRUE(Reaches("run", 20)) << JobLog();
  const pid_t worker = SecondWorker();
  ASSERT_GT(worker, 0);
  KillSecondNode(worker);
  ::kill(worker, SIGKILL);
  ExpectTheSameBits(job, settings);
  EXPECT_THAT(JobLog(), HasSubstr("rank 1"));
}

// The node's daemons are gone, and Slurm believes that its task is, too. But the task wakes up when
// others have its slices.
TEST_F(Slurm, AnOrphanOfALostNode) {
  const std::vector<std::string> settings{"run.epochs=300", "evaluation.every_epochs=0"};
  const std::string job = Submit({"--set", settings[0], "--set", settings[1], "--set",
                                  "deadlines.silence_s=2", "--set", "cluster.transport=TCP"});
  ASSERT_TRUE(Reaches("run", 20)) << JobLog();
  const pid_t worker = SecondWorker();
  ASSERT_GT(worker, 0);
  KillSecondNode(worker);
  // Not before: the system sends SIGHUP to a stopped process that becomes an orphan.
  ::kill(worker, SIGSTOP);
  EXPECT_TRUE(Eventually(20, [&] { return JobLog().find("Lost rank 1") != std::string::npos; }))
      << JobLog();
  ::kill(worker, SIGCONT);
  ExpectTheSameBits(job, settings);
  EXPECT_TRUE(NothingLeft(20));
}

TEST_F(Slurm, ALostServerIsStartedAgain) {
  const std::vector<std::string> settings{"run.epochs=300", "evaluation.every_epochs=0"};
  const std::string job = Submit({"--set", settings[0], "--set", settings[1]});
  ASSERT_TRUE(Reaches("run", 20)) << JobLog();
  ::kill(RealJob::Find("run", -1), SIGKILL);
  ExpectTheSameBits(job, settings);
  EXPECT_THAT(JobLog(), HasSubstr("Restarting from "));
}

TEST_F(Slurm, ALaunchSubmitsItself) {
  Process submit(
      slurm_->Inside({BinPath("muster"), "launch", Path("config.txtpb"), "--run-dir", Path("run"),
                      "--slurm", "-N 2 -n 2 --job-name=mine -o " + Path("run.log").string()}),
      Path("submit.log"));
  ASSERT_EQ(submit.Wait(20), 0) << submit.Log();
  const std::vector<std::string> said = FirstMatch("Submitted batch job ([0-9]+)", submit.Log());
  ASSERT_FALSE(said.empty()) << submit.Log();
  ExpectTheSameBits(said[1], {});
  EXPECT_EQ(slurm_->JobField(said[1], "JobName"), "mine");
  EXPECT_EQ(slurm_->JobField(said[1], "Requeue"), "1");
}

TEST_F(Slurm, ARunOfOneHostGoesOn) {
  ASSERT_EQ(Launch({}).exit_code, 0);
  std::filesystem::rename(Path("run0"), Path("run"));
  const std::string job = slurm_->Submit({"-N2", "-n2", "-o", Path("run.log")},
                                         fmt::format("exec {} launch --resume {} --epochs 4\n",
                                                     BinPath("muster"), Path("run").string()));
  ExpectTheSameBits(job, {"run.epochs=4"});
  EXPECT_THAT(JobLog(), HasSubstr("  resumes "));
}

// Then the launcher can replace workers.
TEST_F(Slurm, OneNodeNeedsNoSrun) {
  const std::string job =
      slurm_->Submit({"-N1", "-n2", "--requeue", "--open-mode=append", "-o", Path("run.log")},
                     LaunchLine({"--set", kManyEpochs}));
  ASSERT_TRUE(Reaches("run", 3)) << JobLog();
  EXPECT_FALSE(std::filesystem::exists(Path("run/srun.log")));
  (void)slurm_->Run({"scancel", "--batch", "--signal=USR1", job});
  ASSERT_TRUE(slurm_->Becomes(job, "FAILED")) << JobLog();
  EXPECT_EQ(slurm_->JobField(job, "ExitCode"), "143:0");
  EXPECT_TRUE(NothingLeft(20));
  EXPECT_FALSE(Checkpoints("run").empty());
}

TEST_F(Slurm, TheJobCanBeIgnored) {
  const std::string job = Submit({"--no-slurm"});
  ExpectTheSameBits(job, {});
  EXPECT_FALSE(std::filesystem::exists(Path("run/srun.log")));
}

// Each of the two nodes has two cores, which were meant for one task.
TEST_F(Slurm, MoreWorkersThanTasksShareTheCores) {
  const std::string job =
      slurm_->Submit({"-N2", "-c2", "-o", Path("run.log")}, LaunchLine({"--workers", "4"}));
  ExpectTheSameBits(job, {});
  EXPECT_TRUE(std::filesystem::exists(Path("run/worker-3.log")));
}

TEST_F(Slurm, SrunThatRefusesIsNamed) {
  const std::string job = slurm_->Submit({"-N2", "-n2", "-o", Path("run.log")},
                                         "export SRUN_CPUS_PER_TASK=9\n" + LaunchLine({}));
  ASSERT_TRUE(slurm_->Becomes(job, "FAILED")) << JobLog();
  EXPECT_EQ(slurm_->JobField(job, "ExitCode"), "1:0");
  EXPECT_THAT(JobLog(), AllOf(HasSubstr("error: srun (pid "), HasSubstr("failed")));
  EXPECT_TRUE(NothingLeft(10));
}

}  // namespace
}  // namespace muster::testing
