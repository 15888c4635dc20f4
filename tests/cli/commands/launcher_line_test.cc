// The command lines of workers and launches under Slurm, mpirun and the like.
#include <gmock/gmock-more-matchers.h>

#include <filesystem>
#include <fstream>

#include "common/base/text.h"
#include "tests/cli/commands/command_line_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class LauncherLineTest : public CommandLineTest {};

TEST_F(LauncherLineTest, AWorkerTakesTheRankOfItsLauncher) {
  ASSERT_EQ(Run({"token", Path("token")}).exit_code, 0);
  const auto worker = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"worker",       config(),     "--workers",  "2",
                                   "--data",       ".",          "--endpoint", "ipc://@x",
                                   "--token-file", Path("token")};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words);
  };
  Workers("dump:" + Path("dump") + ";exit:17");
  ExpectRefused(worker({"--rank", "AUTO"}), "no launcher gave this process a rank");
  SetVariable("OMPI_COMM_WORLD_RANK", "1");
  SetVariable("OMPI_COMM_WORLD_SIZE", "2");
  SetVariable("OMPI_COMM_WORLD_LOCAL_RANK", "0");
  for (const std::vector<std::string>& rank :
       {std::vector<std::string>{}, {"--rank", "AUTO"}, {"--rank", "auto"}}) {
    EXPECT_EQ(worker(rank).exit_code, 17);
    EXPECT_THAT(ReadFile(Path("dump")),
                HasSubstr("--rank\n1\n--local-rank\n0\n--rank-from\nOpen MPI, "
                          "OMPI_COMM_WORLD_RANK=1"));
  }
  // What is typed counts.
  EXPECT_EQ(worker({"--rank", "0"}).exit_code, 17);
  EXPECT_THAT(ReadFile(Path("dump")),
              AllOf(HasSubstr("--rank\n0\n"), Not(HasSubstr("--rank-from"))));
  EXPECT_EQ(worker({"--join"}).exit_code, 17);
  EXPECT_THAT(ReadFile(Path("dump")),
              AllOf(HasSubstr("--join\n--local-rank\n0\n"), Not(HasSubstr("--rank\n1\n"))));

  SetVariable("OMPI_COMM_WORLD_SIZE", "16");
  ExpectRefused(worker({}), "16 workers (OMPI_COMM_WORLD_SIZE), but cluster.workers is 2");
  SetVariable("PMI_RANK", "0");
  SetVariable("PMI_SIZE", "16");
  ExpectRefused(worker({}), "OMPI_COMM_WORLD_RANK=1 and PMI_RANK=0 contradict");
  SetVariable("PMI_RANK", "one");
  ExpectRefused(worker({}), "PMI_RANK=one: expected a whole number");
}

TEST_F(LauncherLineTest, SeveralLaunchesAreRefused) {
  SetVariable("RANK", "0");
  SetVariable("WORLD_SIZE", "2");
  ExpectRefused(RunLaunch({"--seed", "x"}), "run.seed");  // a script's own variables
  SetVariable("TORCHELASTIC_RUN_ID", "x");
  ExpectRefused(RunLaunch({"--seed", "x"}), "torchrun has started 2 launches (WORLD_SIZE)");
  SetVariable("WORLD_SIZE", "1");
  ExpectRefused(RunLaunch({"--seed", "x"}), "run.seed");
}

// srun passes it on to all of its workers.
TEST_F(LauncherLineTest, AWorkerReadsTheTokenFromStandardInput) {
  ASSERT_EQ(Run({"token", Path("token")}).exit_code, 0);
  Workers("dump:" + Path("dump") + ";exit:17");
  const auto worker = [&](const std::string& input) {
    Job job;
    Start(job,
          {"worker", config(), "--rank", "0", "--workers", "2", "--data", ".", "--endpoint",
           "ipc://@x", "--token-file", "-"},
          "<" + input);
    return job.Finish();
  };
  EXPECT_EQ(worker(Path("token")).exit_code, 17);
  EXPECT_THAT(ReadFile(Path("dump")), StartsWith(ReadFile(Path("token"))));
  ExpectRefused(worker("/dev/null"), "standard input");
  ExpectRefused(worker(config()), "standard input");
}

TEST_F(LauncherLineTest, ALaunchPrintsItsBatchScript) {
  const auto launch = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"launch",  config(),    "--workers", "4",
                                   "--slurm", "-N 2 -n 4", "--print"};
    words.insert(words.end(), more.begin(), more.end());
    return Run(words);
  };
  const Finished printed = launch({"--data", "my data"});
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_THAT(printed.out,
              AllOf(StartsWith("#!/bin/bash\n#SBATCH --job-name=tiny "),
                    HasSubstr("\n#SBATCH -N 2 -n 4\nexec "),
                    HasSubstr("/muster launch " + config() +
                              " --set cluster.workers=4 --set "
                              "'data.dir=my data' --run-dir runs/tiny-job$SLURM_JOB_ID\n")));
  EXPECT_THAT(launch({"--run-dir", Path("run")}).out,
              AllOf(HasSubstr("--set run.dir=" + Path("run")), Not(HasSubstr("SLURM_JOB_ID"))));
  EXPECT_THAT(RunDirs(), ::testing::IsEmpty());
  EXPECT_THAT(launch({"--repeat", "2"}).out, HasSubstr(" --no-requeue "));
  ExpectRefused(launch({"--wait"}), "--wait");
  ExpectRefused(launch({"--devices", "0"}), "--devices");
  EXPECT_EQ(launch({"--devices", "cpu"}).exit_code, 0);
  ExpectRefused(launch({"--set", "cluster.transport=LOCAL"}), "cluster.transport=LOCAL");
  ExpectRefused(launch({"--no-slurm"}), "expected one of --");
  ExpectRefused(launch({"--dry-run"}), "expected one of --");
  ExpectRefused(launch({"--set", "run.epoch=1"}), "epoch");
  ExpectRefused(Run({"launch", config(), "--print"}), "--print requires --slurm");
  ExpectRefused(Run({"launch", config(), "--slurm", "2 nodes", "--print"}), "options of sbatch");
}

TEST_F(LauncherLineTest, ASubmittedLaunchKeepsTheWordsOfItsProgram) {
  std::ofstream(Path("own.txtpb"))
      << "run { epochs: 1 batch_per_worker: 64 } learning_rate { base: 0.1 }";
  const auto program = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"launch", Path("own.txtpb"), "--print"});
    words.insert(words.end(), {"--", "./train", "", "a b"});
    return Run(words);
  };
  EXPECT_THAT(program({"--slurm", "-N 1"}).out, HasSubstr(" -- ./train '' 'a b'\n"));
  ExpectRefused(program({"--slurm", "-N 2"}), "worker.program");
}

TEST_F(LauncherLineTest, ASubmittedLaunchUsesTheDirectoryOfItsConfig) {
  std::filesystem::create_directory(Path("old"));
  WriteConfigFor(Path("mine"), Path("mine.txtpb"));
  WriteConfigFor(Path("old"), Path("old/config.txtpb"));
  const auto launch = [&](const std::string& file) {
    return Run({"launch", Path(file), "--slurm", "-N 2", "--print"});
  };
  EXPECT_THAT(launch("mine.txtpb").out, HasSubstr("/muster launch " + Path("mine.txtpb") + "\n"));
  std::filesystem::create_directory(Path("mine"));
  std::ofstream(Path("mine/metrics.jsonl")) << "{}\n";
  ExpectRefused(launch("mine.txtpb"), Path("mine"));
  // A config of a run repeats that run in a new directory.
  std::ofstream(Path("old/metrics.jsonl")) << "{}\n";
  EXPECT_THAT(launch("old/config.txtpb").out, HasSubstr(" --run-dir runs/old-job$SLURM_JOB_ID\n"));
}

// Programs in place of sbatch and srun write what they get.
TEST_F(LauncherLineTest, SbatchGetsTheOptionsButNoOuterJob) {
  std::filesystem::create_directory(Path("bin"));
  std::ofstream(Path("bin/sbatch"))
      << "#!/bin/sh\n{ printf '%s|' \"$@\"; echo; env; cat; } >" << Path("got") << "\n";
  std::filesystem::permissions(Path("bin/sbatch"), std::filesystem::perms::owner_all);
  SetVariable("PATH", Path("bin") + ":/usr/bin:/bin");
  SetVariable("SLURM_STEP_ID", "0");
  SetVariable("SLURM_CONF", "/etc/slurm.conf");
  EXPECT_EQ(Run({"launch", config(), "--slurm", "-N 2 --comment 'a b'"}).exit_code, 0);
  EXPECT_THAT(
      ReadFile(Path("got")),
      AllOf(StartsWith("-N|2|--comment|a b|\n"), HasSubstr("\nSLURM_CONF=/etc/slurm.conf\n"),
            Not(HasSubstr("SLURM_STEP_ID")), HasSubstr("\n#SBATCH -N 2 --comment 'a b'\n")));
}

TEST_F(LauncherLineTest, ARequeuedJobUsesTheDirectoryOfItsConfig) {
  WriteConfigFor(Path("mine"), Path("mine.txtpb"));
  for (const auto& [variable, value] :
       std::map<std::string, std::string>{{"SLURM_JOB_ID", "42"},
                                          {"SLURM_JOB_NUM_NODES", "1"},
                                          {"SLURM_JOB_CPUS_PER_NODE", "2"},
                                          {"SLURMD_NODENAME", "n1"}}) {
    SetVariable(variable, value);
  }
  const auto launch = [&](const std::string& keep) {
    return Run({"launch", Path("mine.txtpb"), "--workers", "2", "--data", ".", "--set",
                "checkpoint.keep_last=" + keep});
  };
  Server("exit:3");
  for (const char* const keep : {"2", "0"}) {
    std::filesystem::remove_all(Path("mine"));
    std::filesystem::create_directory(Path("mine"));
    std::ofstream(Path("mine/metrics.jsonl")) << "{}\n";
    ClearVariable("SLURM_RESTART_COUNT");
    EXPECT_EQ(launch(keep).exit_code, 2);
    SetVariable("SLURM_RESTART_COUNT", "1");
    const Finished again = launch(keep);
    EXPECT_EQ(again.exit_code, 3) << again.err;
    EXPECT_EQ(ReadFile(Path("mine/attempt-1/metrics.jsonl")), "{}\n");
  }
}

TEST_F(LauncherLineTest, SrunOfSeveralLaunches) {
  SetVariable("SLURM_JOB_ID", "42");
  SetVariable("SLURM_JOB_NUM_NODES", "2");
  SetVariable("SLURM_STEP_ID", "0");
  SetVariable("SLURM_STEP_NUM_TASKS", "2");
  ExpectRefused(RunLaunch({}), "srun has started 2 launches");
  SetVariable("SLURM_STEP_NUM_TASKS", "1");
  Server("exit:3");
  EXPECT_THAT(RunLaunch({}).out, StartsWith("Warning: srun runs this launch"));
}

// What Slurm tells a batch script; there is no srun.
TEST_F(LauncherLineTest, ALaunchInASlurmJob) {
  SetVariable("SLURM_JOB_ID", "42");
  SetVariable("SLURM_JOB_NUM_NODES", "2");
  SetVariable("SLURM_JOB_CPUS_PER_NODE", "2(x2)");
  SetVariable("PATH", Path("nowhere"));
  Workers(R"(print:{"what":"weights","bytes":7000000,"holder":"server"};exit:0)");
  EXPECT_THAT(RunLaunch({}).err, HasSubstr("needs srun"));
  ExpectRefused(RunLaunch({"--devices", "0"}), "in Slurm job 42 Slurm chooses the GPUs");
  ExpectRefused(RunLaunch({"--wait", "1"}), "in Slurm job 42 Slurm chooses the GPUs");
  ExpectRefused(RunLaunch({"--dry-run"}), "--no-slurm");
  EXPECT_EQ(RunLaunch({"--dry-run", "--no-slurm"}).exit_code, 0);
  SetVariable("SLURM_NTASKS", "x");
  ExpectRefused(RunLaunch({}), "SLURM_NTASKS=x");
}

}  // namespace
}  // namespace muster::testing
