// Workers started by launchers that give each process a rank.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>

#include "tests/base/paths.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Launchers : public HandJob {
 protected:
  Words WorkerWords(const std::string& endpoint) const {
    return {BinPath("muster"), "worker",   Path("run/config.txtpb"), "--endpoint", endpoint,
            "--token-file",    TokenFile()};
  }

  // Starts a server, and `launcher` with two workers.
  void ExpectTheSameBits(Words launcher, const std::string& engine) {
    const auto server = Server({"--token-file", TokenFile()});
    const Words worker = WorkerWords(Endpoint(*server));
    launcher.insert(launcher.end(), worker.begin(), worker.end());
    // Open MPI refuses root otherwise, and more processes than cores.
    const std::map<std::string, std::string> environment{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                                         {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                                         {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
                                                         {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
    const auto workers = PlainWorker(launcher, {.environment = environment});
    ExpectSuccess(workers, server);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_THAT(Slurp(Path(fmt::format("run/worker-{}.log", rank))),
                  AllOf(HasSubstr(fmt::format("as worker {} ({}", rank, engine)),
                        HasSubstr(fmt::format("local rank {})", rank))));
    }
    EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
  }
};

TEST_F(Launchers, OpenMpi) {
  const std::string program = ProgramInPath("mpirun.openmpi");
  if (program.empty()) GTEST_SKIP() << "needs mpirun.openmpi (openmpi-bin)";
  ExpectTheSameBits({program, "-np", "2"}, "Open MPI");
}

TEST_F(Launchers, Mpich) {
  const std::string program = ProgramInPath("mpirun.mpich");
  if (program.empty()) GTEST_SKIP() << "needs mpirun.mpich (mpich)";
  ExpectTheSameBits({program, "-np", "2"}, "MPICH");
}

TEST_F(Launchers, Torchrun) {
  const std::string program = ProgramInPath("torchrun");
  if (program.empty()) GTEST_SKIP() << "needs torchrun (PyTorch)";
  ExpectTheSameBits({program, "--standalone", "--nproc_per_node=2", "--no_python"}, "torchrun");
}

// The environment of two pods of an indexed Job.
TEST_F(Launchers, Kubernetes) {
  const auto server = Server({"--token-file", TokenFile()});
  const Words words = WorkerWords(Endpoint(*server));
  const auto pod = [&](const char* index) {
    return PlainWorker(words, {.environment = {{"JOB_COMPLETION_INDEX", index},
                                               {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}}});
  };
  const auto first = pod("0"), second = pod("1");
  ExpectSuccess(first, second, server);
  EXPECT_THAT(second->Log(), HasSubstr("as worker 1 (Kubernetes, JOB_COMPLETION_INDEX=1"));
  EXPECT_EQ(Metrics("run").back()["weights_hash"], LaunchedHash());
}

// mpirun starts all processes, but the job has room for fewer.
TEST_F(Launchers, TooManyProcesses) {
  const auto server = Server({"--token-file", TokenFile()});
  const auto worker = PlainWorker(
      WorkerWords(Endpoint(*server)),
      {.environment = {{"PMI_RANK", "0"}, {"PMI_SIZE", "64"}, {"MPI_LOCALRANKID", "0"}}});
  EXPECT_EQ(worker->Wait(20), Code(ExitCode::kUsage));
  EXPECT_THAT(worker->Log(), AllOf(HasSubstr("PMI_SIZE"), HasSubstr("cluster.workers is 2")));
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(20), Code(ExitCode::kTerminated));
}

}  // namespace
}  // namespace muster::testing
