#include "cli/cluster/slurm_job.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "proto/config.pb.h"
#include "tests/cli/cluster/refusal.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// What a batch script of `sbatch -N2 -n4` gets.
const Environment kBatchJob{{"SLURM_JOB_ID", "42"},   {"SLURM_JOB_NUM_NODES", "2"},
                            {"SLURM_NTASKS", "4"},    {"SLURM_JOB_CPUS_PER_NODE", "2(x2)"},
                            {"SLURM_PROCID", "0"},    {"SLURM_JOB_NAME", "train"},
                            {"SLURMD_NODENAME", "n1"}};

Environment WithVariable(Environment environment, const std::string& name,
                         const std::string& value) {
  environment[name] = value;
  return environment;
}

TEST(SlurmJobTest, OnlyInAJob) {
  EXPECT_FALSE(FindSlurmJob({}));
  EXPECT_FALSE(FindSlurmJob({{"SLURM_CONF", "/etc/slurm.conf"}}));  // srun exists, but no job
  EXPECT_TRUE(FindSlurmJob(WithVariable(kBatchJob, "SLURM_JOB_NAME", "interactive")));
}

TEST(SlurmJobTest, SrunGivesAPartOfTheJob) {
  EXPECT_FALSE(FindSlurmJob(kBatchJob)->in_srun);
  // A salloc shell on a node.
  EXPECT_FALSE(FindSlurmJob(WithVariable(kBatchJob, "SLURM_STEP_ID", "4294967290"))->in_srun);
  Environment step = WithVariable(kBatchJob, "SLURM_STEP_ID", "0");
  step["SLURM_STEP_NUM_TASKS"] = "1";
  step["SLURM_RESTART_COUNT"] = "1";
  const SlurmJob job = *FindSlurmJob(step);
  EXPECT_TRUE(job.in_srun);
  EXPECT_TRUE(job.is_here);
  EXPECT_EQ(job.restarts, 1u);
  step["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_THAT(RefusalOf([&] { FindSlurmJob(step); }), HasSubstr("SLURM_STEP_NUM_TASKS"));
  step["SLURM_STEP_ID"] = "4294967290";
  EXPECT_TRUE(FindSlurmJob(step));
}

TEST(SlurmJobTest, ItsSize) {
  const SlurmJob job = *FindSlurmJob(kBatchJob);
  EXPECT_EQ(job.id, "42");
  EXPECT_EQ(job.nodes, 2u);
  EXPECT_EQ(job.cores, 4u);
  EXPECT_EQ(job.tasks, 4u);
  EXPECT_EQ(job.restarts, 0u);
  EXPECT_FALSE(job.is_here);
  const SlurmJob mixed = *FindSlurmJob(WithVariable(
      WithVariable(kBatchJob, "SLURM_JOB_CPUS_PER_NODE", "2(x3),4"), "SLURM_RESTART_COUNT", "2"));
  EXPECT_EQ(mixed.cores, 10u);
  EXPECT_EQ(mixed.restarts, 2u);
}

TEST(SlurmJobTest, OneNodeIsHereUnlessTheShellIsElsewhere) {
  Environment one = WithVariable(kBatchJob, "SLURM_JOB_NUM_NODES", "1");
  EXPECT_TRUE(FindSlurmJob(one)->is_here);
  one.erase("SLURMD_NODENAME");  // salloc on a login node
  EXPECT_FALSE(FindSlurmJob(one)->is_here);
}

TEST(SlurmJobTest, OnlySeveralNodesNeedTheNumberOfGpus) {
  const Environment odd = WithVariable(kBatchJob, "SLURM_GPUS", "gres/gpu=4");
  EXPECT_THAT(RefusalOf([&] { FindSlurmJob(odd); }), HasSubstr("SLURM_GPUS"));
  EXPECT_TRUE(FindSlurmJob(WithVariable(odd, "SLURM_JOB_NUM_NODES", "1")));
}

TEST(SlurmJobTest, WorkersAreTasksOrGpus) {
  Environment environment = kBatchJob;
  EXPECT_EQ(FindSlurmJob(environment)->Workers(), 4u);
  environment.erase("SLURM_NTASKS");
  EXPECT_EQ(FindSlurmJob(environment)->Workers(), std::nullopt);
  EXPECT_EQ(FindSlurmJob(WithVariable(environment, "SLURM_GPUS_ON_NODE", "8"))->Workers(), 16u);
  EXPECT_EQ(FindSlurmJob(WithVariable(environment, "SLURM_GPUS_PER_NODE", "a100:4"))->Workers(),
            8u);
}

TEST(SlurmJobTest, GpusOfAllNodes) {
  Environment environment = kBatchJob;
  EXPECT_EQ(FindSlurmJob(environment)->gpus, std::nullopt);
  environment["SLURM_GPUS_PER_TASK"] = "a100:2";
  EXPECT_EQ(FindSlurmJob(environment)->gpus, 8u);
  environment["SLURM_GPUS_PER_NODE"] = "a100:2,h100:1";
  EXPECT_EQ(FindSlurmJob(environment)->gpus, 6u);
  environment["SLURM_GPUS_ON_NODE"] = "2";
  EXPECT_EQ(FindSlurmJob(environment)->gpus, 4u);
  environment["SLURM_GPUS"] = "3";  // one node has two
  EXPECT_EQ(FindSlurmJob(environment)->gpus, 3u);
  environment["SLURM_GPUS"] = "a100";
  EXPECT_THAT(RefusalOf([&] { FindSlurmJob(environment); }), HasSubstr("SLURM_GPUS=a100"));
}

TEST(SlurmJobTest, TooFewCoresOrGpusAreRefused) {
  SlurmJob job = *FindSlurmJob(kBatchJob);
  config::Config config;
  config.mutable_cluster()->set_workers(5);
  EXPECT_THAT(RefusalOf([&] { PlanForSlurm(job, false, config); }),
              HasSubstr("--ntasks-per-node=3"));
  job.node_cores = {4, 4};
  job.cores = 8;
  EXPECT_NO_THROW(PlanForSlurm(job, false, config));
  job.gpus = 4;
  EXPECT_NO_THROW(PlanForSlurm(job, /*has_cuda=*/false, config));
  EXPECT_THAT(RefusalOf([&] { PlanForSlurm(job, /*has_cuda=*/true, config); }),
              HasSubstr("worker.workers_per_gpu=2"));
  config.mutable_worker()->set_workers_per_gpu(2);
  EXPECT_NO_THROW(PlanForSlurm(job, /*has_cuda=*/true, config));
  EXPECT_EQ(config.cluster().workers(), 5u);
  job.tasks.reset();
  config.mutable_cluster()->clear_workers();
  PlanForSlurm(job, /*has_cuda=*/true, config);
  EXPECT_EQ(config.cluster().workers(), 8u);
}

TEST(SlurmJobTest, OtherNumbersOfWorkersShareTheCores) {
  SlurmJob job{.nodes = 2, .node_cores = {16, 16}, .cores = 32, .tasks = 2, .cores_per_task = 16};
  const auto has = [&](uint32_t workers, const std::string& word) {
    EXPECT_THAT(StepArguments(job, workers, {}, "tcp://n1:7700"), Contains(word)) << workers;
  };
  has(1, "--cpus-per-task=16");
  has(2, "--cpus-per-task=16");
  has(8, "--cpus-per-task=4");
  has(32, "--cpus-per-task=1");
  job.node_cores = {3, 3};  // 2 cores each would leave room for only two workers
  has(3, "--cpus-per-task=1");
  job.node_cores.clear();  // unknown
  has(2, "--cpus-per-task=16");
}

TEST(SlurmJobTest, InvalidValuesAreNamed) {
  EXPECT_THAT(RefusalOf([] { FindSlurmJob(WithVariable(kBatchJob, "SLURM_NTASKS", "four")); }),
              HasSubstr("SLURM_NTASKS=four"));
  EXPECT_THAT(
      RefusalOf([] { FindSlurmJob(WithVariable(kBatchJob, "SLURM_JOB_CPUS_PER_NODE", "2(x")); }),
      HasSubstr("SLURM_JOB_CPUS_PER_NODE=2(x"));
}

TEST(SlurmJobTest, TheConfigFollowsTheJob) {
  SlurmJob job = *FindSlurmJob(kBatchJob);
  job.gpus = 4;
  config::Config config;
  config.mutable_worker()->set_devices("auto");
  PlanForSlurm(job, /*has_cuda=*/true, config);
  EXPECT_EQ(config.cluster().workers(), 4u);
  EXPECT_EQ(config.worker().backend(), config::Worker::CUDA);
  EXPECT_FALSE(config.worker().has_devices());

  config.Clear();
  config.mutable_cluster()->set_workers(3);
  config.mutable_worker()->set_devices("cpu");
  PlanForSlurm(job, /*has_cuda=*/true, config);
  EXPECT_EQ(config.cluster().workers(), 3u);
  EXPECT_EQ(config.worker().backend(), config::Worker::CPU);

  config.Clear();
  PlanForSlurm(job, /*has_cuda=*/false, config);
  EXPECT_EQ(config.worker().backend(), config::Worker::CPU);

  config.mutable_cluster()->set_transport(config::Cluster::LOCAL);
  EXPECT_THAT(RefusalOf([&] { PlanForSlurm(job, false, config); }),
              HasSubstr("cluster.transport=LOCAL"));
  config.Clear();
  config.mutable_worker()->add_program("./train");
  EXPECT_THAT(RefusalOf([&] { PlanForSlurm(job, false, config); }), HasSubstr("worker.program"));
}

TEST(SlurmJobTest, TheStep) {
  SlurmJob job = *FindSlurmJob(kBatchJob);
  const StepFiles files{.muster = "/bin/muster", .config = "/r/config.txtpb", .logs = "/r 5%t"};
  std::vector<std::string> words = StepArguments(job, 4, files, "tcp://n1:7700");
  for (const char* word : {"--ntasks=4", "--no-kill", "--kill-on-bad-exit=0", "--wait=0",
                           "--input=all", "--export=ALL", "--output=/r 5%%t/worker-%t.log",
                           "--open-mode=truncate", "tcp://n1:7700", "AUTO"}) {
    EXPECT_THAT(words, Contains(word));
  }
  EXPECT_THAT(words, Not(Contains(HasSubstr("--cpus-per-task"))));
  job.cores_per_task = 8;
  words = StepArguments(job, 4, {.append = true}, "tcp://n1:7700");
  EXPECT_THAT(words, Contains("--cpus-per-task=8"));
  EXPECT_THAT(words, Contains("--open-mode=append"));
}

TEST(SlurmJobTest, TheBatchScript) {
  BatchJob job{.options = "-N 2 --gpus-per-node 4",
               .name = "my run",
               .launch = "/bin/muster launch c.txtpb"};
  EXPECT_EQ(BatchScript(job),
            "#!/bin/bash\n"
            "#SBATCH --job-name='my run' --requeue --open-mode=append --no-kill\n"
            "#SBATCH -N 2 --gpus-per-node 4\n"
            "exec /bin/muster launch c.txtpb\n");
  job.can_resume = false;
  EXPECT_THAT(BatchScript(job), HasSubstr(" --no-requeue "));
}

TEST(SlurmJobTest, TheOptionsOfSbatch) {
  EXPECT_THAT(BatchOptions(" -N 2  --comment 'it is' --mem=\"a 'b' \\\" c\" -x \\'n1 ''"),
              ElementsAre("-N", "2", "--comment", "it is", "--mem=a 'b' \" c", "-x", "'n1", ""));
  EXPECT_THAT(BatchOptions("--constraint=[a|b]&c"), ElementsAre("--constraint=[a|b]&c"));
  EXPECT_THAT(BatchOptions("-A project --array-of-things"),
              ElementsAre("-A", "project", "--array-of-things"));
  for (const char* wrong : {"", "  ", "2 nodes", "-N 2\nrm -rf x", "-N 2 --array=1-4", "-a 1-4",
                            "--wrap=x -N 2", "-N2 --test-only", "-N 2 --comment 'a"}) {
    EXPECT_THAT(RefusalOf([&] { BatchOptions(wrong); }), HasSubstr("--slurm")) << wrong;
  }
}

TEST(SlurmJobTest, TheNodesOfTheOptions) {
  EXPECT_EQ(NodesAskedFor({"-N", "2"}), 2u);
  EXPECT_EQ(NodesAskedFor({"-N3"}), 3u);
  EXPECT_EQ(NodesAskedFor({"--nodes=2-4", "-n", "8"}), 2u);
  EXPECT_EQ(NodesAskedFor({"--nodes", "2", "-N1"}), 1u);
  EXPECT_EQ(NodesAskedFor({"-n", "8", "--ntasks-per-node=4"}), 1u);
}

TEST(SlurmJobTest, AnOuterJobIsForgotten) {
  EXPECT_THAT(VariablesOfOuterJob({{"SLURM_CONF", "/etc/slurm.conf"},
                                   {"SLURM_STEP_ID", "0"},
                                   {"SLURM_JOB_ID", "42"},
                                   {"SBATCH_ACCOUNT", "a"},
                                   {"PATH", "/bin"}}),
              ElementsAre("SLURM_JOB_ID", "SLURM_STEP_ID"));
}

}  // namespace
}  // namespace muster
