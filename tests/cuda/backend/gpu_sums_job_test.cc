// Jobs whose GPUs add the gradients of their workers (worker.gpu_sums), which a relay makes them
// do.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class GpuSumsJob : public RealJob {
 protected:
  ~GpuSumsJob() override { ::unsetenv("MUSTER_SOFTWARE_GPU"); }

  static std::vector<std::string> Settings(int workers, bool sums, const std::string& more = "") {
    std::vector<std::string> settings{"worker.backend=CUDA",
                                      "worker.soft_placement=false",
                                      "run.steps=20",
                                      "run.global_batch=10",
                                      "run.slices=4",
                                      fmt::format("cluster.workers={}", workers),
                                      fmt::format("worker.gpu_sums={}", sums)};
    if (!more.empty()) settings.push_back(more);
    return settings;
  }
  std::string HashOf(int workers, bool sums, const std::string& more = "") {
    return Succeeded(Launch(Settings(workers, sums, more))).hash();
  }
  std::string WorkerLog(const std::string& run, int rank) const {
    return Slurp(Path(run + fmt::format("/worker-{}.log", rank)));
  }
  std::string RelayLog(const std::string& run) const { return Slurp(Path(run + "/relay.log")); }
  // The relay of this run, which is a child of its launcher.
  pid_t RelayOf(const std::string& run) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string words = Slurp(entry.path() / "cmdline");
      const bool is_relay = words.find(std::string("muster-worker\0relay", 19)) != words.npos;
      if (is_relay && words.find(Path(run)) != std::string::npos) {
        return std::stoi(entry.path().filename());
      }
    }
    return -1;
  }
  // The files that are the memory of GPUs which this process has open, including its own.
  static std::set<std::string> GpusOf(pid_t pid) {
    std::istringstream maps(Slurp(fmt::format("/proc/{}/maps", pid)));
    std::set<std::string> files;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:software_gpu (deleted)") == line.npos) continue;
      std::istringstream words(line);
      std::string range, access, offset, device, inode;
      words >> range >> access >> offset >> device >> inode;
      files.insert(inode);
    }
    return files;
  }
  // Starts a run, lets it reach a step, kills a process, and returns the run's hash.
  template <typename Find>
  std::string HashAfterKilling(const Find& find) {
    ::setenv("MUSTER_SOFTWARE_GPU", "delay_us=5000", 1);
    const auto job = Start("killed", Settings(4, true));
    EXPECT_TRUE(Reaches("killed", 3)) << job->Log();
    const pid_t pid = find();
    EXPECT_GT(pid, 1);
    EXPECT_EQ(pid > 1 ? ::kill(pid, SIGKILL) : -1, 0);
    EXPECT_EQ(job->Wait(120), 0) << job->Log() << RelayLog("killed");
    log_ = Unwrapped(job->Log());
    EXPECT_TRUE(NothingLeft(5));
    return Metrics("killed").back()["weights_hash"].get<std::string>();
  }

  std::string log_;
};

TEST_F(GpuSumsJob, HaveTheBitsOfSumsOnTheHost) {
  const std::string hash = HashOf(1, false);
  EXPECT_EQ(HashOf(4, false), hash);
  EXPECT_FALSE(std::filesystem::exists(Path("run1/relay.log")));
  int run = 2;
  for (const int workers : {2, 3, 4}) {
    EXPECT_EQ(HashOf(workers, true), hash) << workers;
    const std::string name = fmt::format("run{}", run++);
    EXPECT_THAT(RelayLog(name), AllOf(HasSubstr("in its GPUs"), Not(HasSubstr("dropped"))));
    EXPECT_THAT(WorkerLog(name, workers - 1), HasSubstr("gradients stay in the GPU"));
  }
}

TEST_F(GpuSumsJob, SurviveTheLossOfAWorker) {
  const std::string hash = HashOf(1, false);
  EXPECT_EQ(HashAfterKilling([this] { return Find("killed", 2); }), hash);
  EXPECT_THAT(log_, HasSubstr("Lost rank 2"));
}

// Work of a lost worker is done in further buffers, which are not used for many steps until the
// next loss. The relay still reads them where they were. It closes the memory of the lost worker.
TEST_F(GpuSumsJob, SurviveALaterLoss) {
  const std::string hash = HashOf(1, false);
  const auto kill_two = [this] {
    const pid_t first = Find("killed", 2), relay = RelayOf("killed");
    const std::set<std::string> memory = GpusOf(first);
    EXPECT_EQ(memory.size(), 1u);
    EXPECT_THAT(GpusOf(relay), IsSupersetOf(memory));
    EXPECT_EQ(::kill(first, SIGKILL), 0);
    EXPECT_TRUE(Reaches("killed", 15));
    EXPECT_THAT(GpusOf(relay), Not(IsSupersetOf(memory)));
    return Find("killed", 1);
  };
  EXPECT_EQ(HashAfterKilling(kill_two), hash);
  EXPECT_THAT(log_, AllOf(HasSubstr("Lost rank 2"), HasSubstr("Lost rank 1")));
}

TEST_F(GpuSumsJob, SurviveTheLossOfTheRelay) {
  const std::string hash = HashOf(1, false);
  EXPECT_EQ(HashAfterKilling([this] { return RelayOf("killed"); }), hash);
  EXPECT_THAT(log_, HasSubstr("lost the relay that adds the gradients"));
}

// The relay fails by itself, and would again. The workers continue without one.
TEST_F(GpuSumsJob, ContinueWithoutARelayThatFails) {
  const std::string hash = HashOf(1, false);
  ::setenv("MUSTER_SOFTWARE_GPU", "fail=cudaIpcOpenMemHandle:2:101", 1);
  const Outcome outcome = Succeeded(Launch(Settings(4, true)));
  EXPECT_EQ(outcome.hash(), hash);
  EXPECT_THAT(Unwrapped(outcome.log), HasSubstr("From now on workers copy their gradients"));
  EXPECT_THAT(RelayLog("run1"), HasSubstr("read the memory of another GPU"));
}

// Where something needs the gradients on the host, or rounds them, they do not stay in the GPU.
TEST_F(GpuSumsJob, AreMadeOnTheHostWhereTheGradientsAreNeededThere) {
  int run = 0;
  for (const char* const why : {"worker.check_gradients=true", "cluster.wire_dtype=BF16"}) {
    const std::string hash = HashOf(1, false, why);
    EXPECT_EQ(HashOf(4, true, why), hash) << why;
    ++run;
    EXPECT_THAT(WorkerLog(fmt::format("run{}", run++), 3),
                Not(HasSubstr("gradients stay in the GPU")));
  }
}

// The relay's GPU cannot read the others. Each worker then copies its gradients to the host.
TEST_F(GpuSumsJob, WithoutAccessBetweenGpusAreMadeOnTheHost) {
  const std::string hash = HashOf(1, false);
  ::setenv("MUSTER_SOFTWARE_GPU", "devices=4,fail=cudaDeviceCanAccessPeer:2:217", 1);
  EXPECT_EQ(HashOf(4, true), hash);
  EXPECT_THAT(RelayLog("run1"), HasSubstr("adding gradients on the host instead"));
  EXPECT_THAT(WorkerLog("run1", 3), Not(HasSubstr("gradients stay in the GPU")));
}

}  // namespace
}  // namespace muster::testing
