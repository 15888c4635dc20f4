// Typical runs: the smoke config, early stops, series, dry runs, accumulation.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "common/base/error.h"
#include "common/config/resolved.h"
#include "proto/config.pb.h"
#include "tests/base/paths.h"
#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kSmoke = ConfigPath("smoke.txtpb");

bool Mentions(const std::vector<std::string>& settings, const std::string& path) {
  return std::ranges::any_of(settings,
                             [&](const std::string& one) { return one.starts_with(path); });
}

class Runs : public RealJob {
 protected:
  // Runs `muster launch configs/smoke.txtpb` in run directory `name`, with settings path=value.
  std::vector<std::string> SmokeArguments(const std::string& name,
                                          const std::vector<std::string>& settings,
                                          const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"launch", kSmoke, "--run-dir", Path(name)};
    // Two workers, whatever machine the test runs on.
    if (!Mentions(settings, "cluster.workers")) {
      arguments.insert(arguments.end(), {"--set", "cluster.workers=2"});
    }
    for (const std::string& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  Outcome Smoke(const std::string& name, const std::vector<std::string>& settings,
                const std::vector<std::string>& more = {}) {
    return Muster(SmokeArguments(name, settings, more), name);
  }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(Path("."))) {
      if (entry.path().extension() != ".log") files.insert(entry.path());
    }
    return files;
  }
};

TEST_F(Runs, TheSmokeConfigLearnsInSeconds) {
  const Outcome outcome = Succeeded(Smoke("run", {}, {"--log-placement", "--verbose"}));
  const nlohmann::json& last = outcome.metrics.back();
  EXPECT_GT(last["test_accuracy"], 0.9);  // chance is 0.1
  EXPECT_GE(last["best_test_accuracy"], last["test_accuracy"]);
  EXPECT_GT(last["best_step"], 0);
  EXPECT_EQ(last["stopped_early"], false);
  EXPECT_EQ(last["ranks"].size(), 2u);
  EXPECT_GT(last["ranks"][1]["compute_ms"], 0);
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("cores"), HasSubstr("  limit  ")));
}

// The weights equal those of a run of exactly that many steps: no later step is included.
TEST_F(Runs, StopAtAccuracyEndsTheRunAtThatEvaluation) {
  const Outcome outcome = Succeeded(Smoke(
      "run", {"evaluation.stop_at_accuracy=0.5", "evaluation.every_steps=10", "run.epochs=50"}));
  const nlohmann::json& last = outcome.metrics.back();
  EXPECT_EQ(last["reason"], "completed");
  EXPECT_EQ(last["stopped_early"], true);
  EXPECT_GE(last["test_accuracy"], 0.5);
  const int64_t step = last["step"];
  EXPECT_EQ(step % 10, 0);
  EXPECT_LT(step, 200);
  EXPECT_EQ(last["best_step"], step);
  EXPECT_EQ(last["stopped_early"], true);
  for (const nlohmann::json& line : outcome.metrics) {
    if (line.contains("test_accuracy") && line["step"] < step) {
      EXPECT_LT(line["test_accuracy"], 0.5);
    }
  }
  const Outcome same = Smoke("same", {"run.steps=" + std::to_string(step)});
  EXPECT_EQ(same.hash(), outcome.hash());
  EXPECT_TRUE(NothingLeft(2));
}

TEST_F(Runs, AJobThatCannotFitIsRefused) {
  const Outcome outcome = Smoke("run", {"model.layer[classes].dense.units=16000000",
                                        "model.layer[pool2].avg_pool.kernel=[1]"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.log,
              AllOf(HasSubstr("the job needs at least"), HasSubstr("this machine has")));
  EXPECT_FALSE(fs::exists(Path("run")));
}

// The names of its layers would fill a Hello. Planning it used to take quadratic time.
TEST_F(Runs, ANetworkOfManyLayersTrains) {
  std::ofstream config(Path("deep.txtpb"));
  config << R"(run { steps: 1 global_batch: 2 slices: 1 } cluster { workers: 1 }
    data { format: SYNTHETIC synthetic { height: 2 width: 2 train_samples: 4 test_samples: 0 } }
    learning_rate { base: 0.01 } evaluation { every_epochs: 0 skip_final: true } model {
    layer { name: "fc" dense { units: 10 } })";
  for (int i = 0; i < 12000; ++i) {
    config << "layer { name: \"a_long_name_for_a_layer_that_does_little_" << i << "\" relu {} }\n";
  }
  config << "layer { name: \"loss\" softmax_cross_entropy {} } }\n";
  config.close();
  const Outcome outcome =
      Succeeded(Muster({"launch", Path("deep.txtpb"), "--run-dir", Path("deep")}, "deep"));
}

TEST_F(Runs, ASeriesRunsConsecutiveSeeds) {
  const Outcome outcome =
      Succeeded(Smoke("series", {"run.steps=20", "run.seed=7"}, {"--repeat", "2"}));
  std::ifstream file(Path("series/repeat.json"));
  const nlohmann::json json = nlohmann::json::parse(file);
  ASSERT_EQ(json["runs"].size(), 2u);
  const double a = json["runs"][0]["test_accuracy"], b = json["runs"][1]["test_accuracy"];
  EXPECT_NEAR(json["test_accuracy"]["mean"], (a + b) / 2, 1e-12);
  EXPECT_NEAR(json["test_accuracy"]["deviation"], std::abs(a - b) / std::sqrt(2), 1e-12);
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("run 1 of 2: seed 7"), HasSubstr("run 2 of 2: seed 8"),
                                 HasSubstr("(2 runs)")));
  // Each run equals a single run with its seed.
  const Outcome alone = Smoke("alone", {"run.steps=20", "run.seed=8"});
  EXPECT_EQ(json["runs"][1]["weights_hash"], alone.hash());
  EXPECT_NE(json["runs"][0]["weights_hash"], alone.hash());
  EXPECT_EQ(Metrics("series/seed-8").back()["weights_hash"], alone.hash());
  // A series is not overwritten.
  EXPECT_EQ(Smoke("series", {"run.seed=9"}, {"--repeat", "2"}).exit_code, 2);
}

TEST_F(Runs, ARunThatFailsEndsTheSeries) {
  const Outcome outcome =
      Smoke("series",
            {"model.layer[conv1].conv2d.weights={ initializer { type: CONSTANT value: 3e38 } }"},
            {"--repeat", "3"});
  EXPECT_EQ(outcome.exit_code, Code(ExitCode::kNonfinite)) << outcome.log;
  EXPECT_TRUE(fs::exists(Path("series/seed-1")));
  EXPECT_FALSE(fs::exists(Path("series/seed-2")));
  EXPECT_THAT(outcome.log, HasSubstr("1 run of 3"));
}

TEST_F(Runs, CtrlCEndsTheSeries) {
  std::vector<std::string> arguments =
      SmokeArguments("series", {"run.epochs=100000"}, {"--repeat", "3"});
  arguments.insert(arguments.begin(), "muster");
  Process process(arguments, Path("series.log"));
  ASSERT_TRUE(Eventually(30, [&] { return !Metrics("series/seed-1").empty(); }));
  EXPECT_EQ(process.EndBy(SIGINT, 15), Code(ExitCode::kInterrupted));
  EXPECT_FALSE(fs::exists(Path("series/seed-2")));
  EXPECT_TRUE(NothingLeft(2));
  // The message includes the remedy.
  EXPECT_THAT(
      process.Log(),
      AllOf(ContainsRegex("To resume from step [0-9,]+: muster launch --resume .*/series/seed-1"),
            HasSubstr("A series cannot be resumed as a whole"),
            ContainsRegex("muster launch .*smoke.txtpb --seed 2 --repeat 2 --run-dir ")));
  const Outcome whole = Muster({"launch", "--resume", Path("series")});
  EXPECT_EQ(whole.exit_code, 2);
  EXPECT_THAT(whole.log, HasSubstr("is a series"));
}

TEST_F(Runs, ADryRunLeavesNothingBehind) {
  const std::set<std::string> before = Files();
  const Outcome outcome = Succeeded(Smoke("run", {}, {"--dry-run", "--verbose"}));
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("learning_rate {"), HasSubstr("2,560 for training"),
                                 HasSubstr("steps in total     120"), HasSubstr("optimizer state"),
                                 HasSubstr("training: activations, scratch"),
                                 HasSubstr("code, libraries, kernels"),
                                 HasSubstr("total, shared parts counted once")));
  EXPECT_EQ(Files(), before);
  EXPECT_EQ(Muster({"launch", Path("tiny.txtpb"), "--data", Path("data"), "--dry-run"}).exit_code,
            0);
  const Outcome no_data = Muster({"launch", Path("tiny.txtpb"), "--data", "/nowhere", "--dry-run"});
  EXPECT_EQ(no_data.exit_code, 3);
  EXPECT_THAT(no_data.log,
              AllOf(HasSubstr("unknown: /nowhere: no CIFAR-10"),
                    HasSubstr("muster: error: a run would fail: /nowhere: no CIFAR-10")));
  const Outcome no_dir = Muster({"launch", Path("tiny.txtpb"), "--dry-run"});
  EXPECT_EQ(no_dir.exit_code, 0);
  EXPECT_THAT(no_dir.log, HasSubstr("unknown: data.dir"));
  EXPECT_EQ(Files(), before);
}

// The rows that `muster-worker memory` prints for the smoke config with these settings, by name.
std::map<std::string, double> MemoryOf(const std::vector<std::string>& settings,
                                       const std::filesystem::path& folder) {
  std::vector<Setting> parsed;
  for (const std::string& setting : settings) parsed.push_back(ParseSetting(setting));
  config::Config config = LoadConfig(kSmoke, parsed);
  ResolveConfig(config, 2);
  WriteRunConfig({}, config, folder / "resolved.txtpb");
  Process process({"muster-worker", "memory", "--rank", "1", "--config", folder / "resolved.txtpb"},
                  folder / "memory.log");
  EXPECT_EQ(process.Wait(60), 0) << process.Log();
  std::map<std::string, double> rows;
  std::istringstream lines(process.Log());
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    rows[row["what"]] = row["bytes"];
  }
  return rows;
}

TEST_F(Runs, AWrongCommandOfTheWorkerProgramIsRefused) {
  using Words = std::vector<std::string>;
  for (const Words& words :
       {Words{}, Words{"trian"}, Words{"train"}, Words{"memory", "--rank", "0"},
        Words{"predict", "--config", "c", "--weights", "w"}}) {
    Words command{"muster-worker"};
    command.insert(command.end(), words.begin(), words.end());
    Process process(command, Path("worker.log"));
    EXPECT_EQ(process.Wait(60), 2) << process.Log();
  }
}

TEST_F(Runs, AWorkerKnowsItsMemoryBeforeItRuns) {
  auto rows = MemoryOf({"cluster.workers=2", "run.slices=2"}, Path("."));
  // configs/smoke.txtpb has 432 + 16 + 4608 + 32 + 320 + 10 variables, rounded up to 16 floats.
  constexpr double kArena = 4 * (432 + 16 + 4608 + 32 + 320 + 16);
  EXPECT_EQ(rows["weights, two buffers (shared)"], 2 * kArena);
  EXPECT_EQ(rows["gradients to push (shared)"], kArena);
  // The second convolution's transformed weights, forward and backward, and at most a copy of the
  // first's.
  constexpr double kTransformed = 2 * 16 * (16 * 32 + 16) * 4;
  EXPECT_GE(rows["weights in kernel layouts"], kTransformed);
  EXPECT_LE(rows["weights in kernel layouts"], kTransformed + 2 * 4 * 9 * 16 * 16);
  // Images of 16x16x3 floats, a label and an index. Five slices of 32, and five blocks of 250, of
  // which the test set has only two. All in whole pages, of the largest size.
  const auto pages = [](double bytes) { return 65536 * std::ceil(bytes / 65536); };
  const double sample = 4 * 16 * 16 * 3 + 4 + 8;
  EXPECT_EQ(rows["batches made ahead"], pages(5 * 32 * sample));
  EXPECT_EQ(rows["evaluation batches"], pages(250 * sample));
  EXPECT_EQ(rows["sample orders of two epochs"], 2 * 8 * 2560);
  EXPECT_GT(rows["training: activations, scratch"], 32 * 4 * 16 * 16 * (16 + 16));
  EXPECT_GT(rows["code, libraries, kernels"], 1e6);

  auto tcp = MemoryOf(
      {"cluster.workers=2", "cluster.transport=TCP", "cluster.wire_dtype=BF16", "run.slices=8"},
      Path("."));
  EXPECT_EQ(tcp["weights, two buffers"], 2 * kArena);
  EXPECT_EQ(tcp["gradients to push"], kArena);
  EXPECT_EQ(tcp["received weights (at most)"], kArena / 2);
  EXPECT_EQ(tcp["16-bit gradients"], 6 * kArena / 2);   // one chunk, six buffers
  EXPECT_EQ(tcp["accumulated gradients"], 2 * kArena);  // four slices: a tree of two levels
}

// The prediction of a dry run is compared with the worker's log.
TEST_F(Runs, TheMemoryOfADryRunIsWhatAWorkerUses) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer uses many times the memory of the program";
#endif
  // Large batches, so that arrays dominate. The rest (messages, small objects, stacks, pages of
  // libraries that only training touches) is 4 to 11 MB, whatever the batch.
  const std::vector<std::string> settings{"cluster.workers=2",
                                          "run.global_batch=6400",
                                          "run.slices=2",
                                          "evaluation.batch=2000",
                                          "data.synthetic.train_samples=6400",
                                          "data.synthetic.test_samples=2000",
                                          "run.steps=4"};
  double expected = 0;
  for (const auto& [what, bytes] : MemoryOf(settings, Path("."))) expected += bytes;
  const Outcome outcome = Succeeded(Smoke("run", settings));
  // Only one of the workers evaluates, because there is a single block.
  double peak = 0;
  for (const char* name : {"run/worker-0.log", "run/worker-1.log"}) {
    std::ifstream log(Path(name));
    for (std::string line; std::getline(log, line);) {
      const size_t at = line.find("peak memory ");
      if (at != std::string::npos) peak = std::max(peak, 1e6 * std::stod(line.substr(at + 12)));
    }
  }
  EXPECT_GT(expected, 180e6);
  EXPECT_NEAR(peak, expected, 0.1 * expected);
}

TEST_F(Runs, ADirectoryOfARunThatDidNotBeginCanBeUsedAgain) {
  const auto with_data = [&](const std::string& dir) {
    return Muster({"launch", Path("tiny.txtpb"), "--data", dir, "--run-dir", Path("run")}, "run");
  };
  EXPECT_EQ(with_data(Path("no-data")).exit_code, Code(ExitCode::kData));
  const Outcome again = Succeeded(with_data(Path("data")));
  EXPECT_EQ(again.metrics.back()["reason"], "completed");
}

}  // namespace
}  // namespace muster::testing
