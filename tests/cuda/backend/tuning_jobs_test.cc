// Trainings with worker.autotune, on the software GPU. Its times follow from its seed: a worker
// that timed for itself, or anew, with another seed, would compute other bits.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "tests/e2e/hand_job.h"
#include "tests/launch/text/unwrapped.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Slices of one size and no evaluation: fewer shapes to time.
const std::vector<std::string> kTuned{"run.global_batch=20",         "evaluation.every_epochs=0",
                                      "evaluation.skip_final=true",  "worker.backend=CUDA",
                                      "worker.soft_placement=false", "worker.autotune=true"};
constexpr const char* kTimed = "worker.autotune: timed ";
constexpr const char* kUses = "worker.autotune: the algorithms are the job's choice";

class CudaTuningJob : public HandJob {
 protected:
  ~CudaTuningJob() override { ::unsetenv("MUSTER_SOFTWARE_GPU"); }

  static void SetGpu(const std::string& options) {
    ::setenv("MUSTER_SOFTWARE_GPU", options.c_str(), 1);
  }
  Outcome Tuned(std::vector<std::string> settings) {
    settings.insert(settings.begin(), kTuned.begin(), kTuned.end());
    return Launch(settings);
  }
  std::string HashOf(const std::vector<std::string>& settings) {
    const Outcome outcome = Tuned(settings);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.log;
    EXPECT_EQ(outcome.hash().size(), 16u);
    return outcome.hash();
  }
  std::string LogOf(const std::string& run, const std::string& process) const {
    std::ifstream file(Path(run) / (process + ".log"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static Words AsOptions(const std::vector<std::string>& settings) {
    Words words;
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return words;
  }
};

TEST_F(CudaTuningJob, AllWorkersUseTheChoiceOfOne) {
  SetGpu("seed=2");
  const std::string other = HashOf({"run.steps=2", "cluster.workers=1"});
  SetGpu("seed=1");
  const std::string hash = HashOf({"run.steps=2", "cluster.workers=1"});
  EXPECT_NE(other, hash) << "these seeds make the same choice";
  EXPECT_EQ(HashOf({"run.steps=2", "cluster.workers=4", "cluster.transport=TCP"}), hash);
  EXPECT_THAT(LogOf("run2", "worker-0"), HasSubstr(kTimed));
  EXPECT_THAT(LogOf("run2", "worker-3"), AllOf(HasSubstr(kUses), Not(HasSubstr(kTimed))));

  // Two, of which one would choose otherwise.
  std::vector<std::string> settings = kTuned;
  settings.push_back("run.steps=2");
  Words words = AsOptions(settings);
  words.insert(words.end(), {"--token-file", TokenFile()});
  const auto server = Server(words);
  const std::string endpoint = Endpoint(*server);
  const auto first = Worker(0, endpoint, AsOptions(settings));
  const auto second = Worker(1, endpoint, AsOptions(settings),
                             {.environment = {{"MUSTER_SOFTWARE_GPU", "seed=2"}}});
  ASSERT_EQ(server->Wait(60), 0) << server->Log();
  EXPECT_EQ(first->Wait(20), 0) << first->Log();
  EXPECT_EQ(second->Wait(20), 0) << second->Log();
  EXPECT_EQ(Metrics("run").back()["weights_hash"].get<std::string>(), hash);
}

TEST_F(CudaTuningJob, AReplacementUsesTheSameChoice) {
  SetGpu("seed=1");
  const std::vector<std::string> settings{"run.steps=15"};
  const std::string hash = HashOf(settings);
  SetGpu("seed=1,delay_us=5000");  // the run is not over before the kill
  std::vector<std::string> all = kTuned;
  all.insert(all.end(), settings.begin(), settings.end());
  const auto job = Start("killed", all);
  ASSERT_TRUE(Reaches("killed", 3)) << job->Log();
  // The worker that had chosen.
  const pid_t worker = Find("killed", 0);
  ASSERT_GT(worker, 0);
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  EXPECT_EQ(job->Wait(120), 0) << job->Log();
  EXPECT_EQ(Metrics("killed").back()["weights_hash"].get<std::string>(), hash);
  EXPECT_TRUE(NothingLeft(5));
}

TEST_F(CudaTuningJob, ARunThatGoesOnKeepsItsChoice) {
  SetGpu("seed=1");
  const std::string whole = HashOf({"run.steps=4", "cluster.workers=1"});
  int runs = 1;
  for (const int workers : {1, 2, 4}) {
    SetGpu("seed=1");
    const std::string run = fmt::format("run{}", runs);
    runs += 2;  // GoOn counts, too
    const Outcome begun = Tuned({"run.steps=2"});
    ASSERT_EQ(begun.exit_code, 0) << begun.log;
    SetGpu("seed=2");
    const Outcome on =
        GoOn(run, {"--set", "run.steps=4", "--set", fmt::format("cluster.workers={}", workers)});
    EXPECT_EQ(on.exit_code, 0) << on.log;
    EXPECT_EQ(on.hash(), whole) << workers;
    EXPECT_THAT(LogOf(run, "server"),
                HasSubstr("the algorithms are those that the run began with"));
  }
}

TEST_F(CudaTuningJob, OnAnotherCardItIsSaidAndChosenAnew) {
  SetGpu("seed=1");
  const Outcome begun = Tuned({"run.steps=3"});
  ASSERT_EQ(begun.exit_code, 0) << begun.log;
  SetGpu("seed=1,multiprocessors=4");
  const Outcome on = GoOn("run0", {"--set", "run.steps=5"});
  EXPECT_EQ(on.exit_code, 0) << on.log;
  EXPECT_THAT(Unwrapped(on.log),
              AllOf(HasSubstr("2 SMs"), HasSubstr("4 SMs"),
                    HasSubstr("the choice of algorithms (worker.autotune) is not kept")));
  EXPECT_THAT(LogOf("run0", "worker-0"), HasSubstr(kTimed));
}

}  // namespace
}  // namespace muster::testing
