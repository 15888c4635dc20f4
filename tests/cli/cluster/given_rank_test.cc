#include "cli/cluster/given_rank.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/error.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Environment Joined(Environment a, const Environment& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Environment kSrun{{"SLURM_JOB_ID", "42"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "3"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_STEP_NUM_TASKS", "4"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_NODELIST", "n[1-2]"}};
// The batch script of an allocation is a task, but srun has not started it.
const Environment kBatchScript{
    {"SLURM_JOB_ID", "42"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"PMIX_RANK", "5"}};
const Environment kMpich{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "0"}};
const Environment kTorchrun{
    {"RANK", "6"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "2"}, {"TORCHELASTIC_RUN_ID", "none"}};
const Environment kKubernetes{{"JOB_COMPLETION_INDEX", "1"},
                              {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};

void ExpectGiven(const Environment& environment, const std::string& engine, uint32_t rank,
                 std::optional<uint32_t> size, uint32_t local_rank) {
  const std::optional<GivenRank> given = FindGivenRank(environment);
  ASSERT_TRUE(given) << engine;
  EXPECT_EQ(given->engine, engine);
  EXPECT_EQ(given->rank, rank);
  EXPECT_EQ(given->size, size);
  EXPECT_EQ(given->local_rank, local_rank);
}

// Returns the error's text.
std::string RankRefusal(const Environment& environment) {
  try {
    const std::optional<GivenRank> given = FindGivenRank(environment);
    ADD_FAILURE() << "expected an error, got " << (given ? Describe(*given) : "no rank");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(GivenRankTest, EachLauncher) {
  EXPECT_FALSE(FindGivenRank({}));
  EXPECT_FALSE(FindGivenRank({{"RANK", ""}, {"PATH", "/bin"}}));
  ExpectGiven(kSrun, "Slurm", 3, 4, 1);
  ExpectGiven(kOpenMpi, "Open MPI", 5, 8, 1);
  ExpectGiven(kMpich, "MPICH", 2, 3, 0);
  ExpectGiven(kTorchrun, "torchrun", 6, 8, 2);
  ExpectGiven(kKubernetes, "Kubernetes", 1, std::nullopt, 0);
  // A script, or Kubeflow's operator for PyTorch.
  ExpectGiven({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "torchrun", 1, 2, 0);
}

TEST(GivenRankTest, TheNumberOfProcessesOnAHost) {
  const auto local_size = [](Environment environment, const std::string& name,
                             const std::string& value, const std::string& node = "") {
    environment[name] = value;
    if (!node.empty()) environment["SLURM_NODEID"] = node;
    return FindGivenRank(environment)->local_size;
  };
  EXPECT_EQ(local_size(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "4"), 4u);
  EXPECT_EQ(local_size(kMpich, "MPI_LOCALNRANKS", "3"), 3u);
  EXPECT_EQ(local_size(kTorchrun, "LOCAL_WORLD_SIZE", "8"), 8u);
  EXPECT_EQ(FindGivenRank(kKubernetes)->local_size, 1u);
  constexpr const char* kTasks = "SLURM_STEP_TASKS_PER_NODE";
  EXPECT_EQ(local_size(kSrun, kTasks, "2(x3),1,4", "0"), 2u);
  EXPECT_EQ(local_size(kSrun, kTasks, "2(x3),1,4", "2"), 2u);
  EXPECT_EQ(local_size(kSrun, kTasks, "2(x3),1,4", "3"), 1u);
  EXPECT_EQ(local_size(kSrun, kTasks, "2(x3),1,4", "4"), 4u);
  EXPECT_EQ(local_size(kSrun, kTasks, "2(x3),1,4", "5"), 1u);
  EXPECT_EQ(local_size(kSrun, kTasks, "many", "0"), 1u);
  EXPECT_EQ(local_size(kSrun, kTasks, "2(x3)"), 1u) << "without SLURM_NODEID";
}

TEST(GivenRankTest, SrunHasNotStartedABatchScript) {
  EXPECT_FALSE(FindGivenRank(kBatchScript));
  ExpectGiven(Joined(kBatchScript, kOpenMpi), "Open MPI", 5, 8, 1);
}

TEST(GivenRankTest, TheInnerLauncherCounts) {
  // One mpirun or torchrun for each node: srun's ranks are those of the nodes.
  ExpectGiven(Joined(kSrun, kOpenMpi), "Open MPI", 5, 8, 1);
  ExpectGiven(Joined(kSrun, kMpich), "MPICH", 2, 3, 0);
  ExpectGiven(Joined(kSrun, kTorchrun), "torchrun", 6, 8, 2);
  ExpectGiven(Joined(kOpenMpi, kTorchrun), "torchrun", 6, 8, 2);
  ExpectGiven(Joined(kKubernetes, kTorchrun), "torchrun", 6, 8, 2);
  ExpectGiven(Joined(kKubernetes, kOpenMpi), "Open MPI", 5, 8, 1);
  // Slurm's plugin for PMI-2 tells each task its rank, too.
  const Environment with_pmi = Joined(kSrun, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  ExpectGiven(with_pmi, "Slurm", 3, 4, 1);
  ExpectGiven(Joined(with_pmi, kTorchrun), "torchrun", 6, 8, 2);
}

TEST(GivenRankTest, AgreeingVariablesAreFine) {
  ExpectGiven(Joined(kSrun, {{"RANK", "3"}, {"WORLD_SIZE", "4"}}), "Slurm", 3, 4, 1);
  ExpectGiven(Joined(kKubernetes, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "Kubernetes", 1,
              std::nullopt, 0);
}

TEST(GivenRankTest, ContradictionsAreNamed) {
  EXPECT_THAT(RankRefusal(Joined(kSrun, {{"RANK", "2"}, {"WORLD_SIZE", "4"}})),
              AllOf(HasSubstr("SLURM_PROCID=3"), HasSubstr("RANK=2")));
  EXPECT_THAT(RankRefusal(Joined(kSrun, {{"RANK", "3"}, {"WORLD_SIZE", "8"}})),
              AllOf(HasSubstr("SLURM_STEP_NUM_TASKS=4"), HasSubstr("WORLD_SIZE=8")));
  EXPECT_THAT(RankRefusal(Joined(kSrun, {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}})),
              AllOf(HasSubstr("SLURM_PROCID=3"), HasSubstr("PMI_RANK=0")));
  EXPECT_THAT(RankRefusal(Joined(kOpenMpi, kMpich)),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=5"), HasSubstr("PMI_RANK=2")));
  EXPECT_THAT(RankRefusal(Joined(kKubernetes, {{"RANK", "0"}, {"WORLD_SIZE", "2"}})),
              AllOf(HasSubstr("JOB_COMPLETION_INDEX=1"), HasSubstr("RANK=0")));
}

TEST(GivenRankTest, AWorkerWithAnyRankNeedsOnlyAClearLocalRank) {
  EXPECT_EQ(FindGivenRankIfClear(kSrun)->local_rank, 1u);
  EXPECT_FALSE(FindGivenRankIfClear({}));
  EXPECT_FALSE(FindGivenRankIfClear({{"RANK", "3"}}));
}

TEST(GivenRankTest, InvalidValuesAreNamed) {
  for (const char* value : {"x", "-1", "1.5", "3 ", "0x1", "4294967296", "18446744073709551617"}) {
    Environment environment = kSrun;
    environment["SLURM_PROCID"] = value;
    EXPECT_THAT(RankRefusal(environment), HasSubstr(std::string("SLURM_PROCID=") + value));
  }
  EXPECT_THAT(RankRefusal({{"RANK", "3"}}), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(RankRefusal({{"RANK", "3"}, {"WORLD_SIZE", "3"}}), HasSubstr("RANK=3"));
  EXPECT_THAT(RankRefusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "a"}}),
              HasSubstr("LOCAL_RANK=a"));
}

TEST(GivenRankTest, TheDescriptionNamesEngineAndRank) {
  EXPECT_EQ(Describe(*FindGivenRank(kSrun)),
            "Slurm, SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4, local rank 1");
  EXPECT_EQ(Describe(*FindGivenRank(kKubernetes)),
            "Kubernetes, JOB_COMPLETION_INDEX=1, local rank 0");
}

}  // namespace
}  // namespace muster
