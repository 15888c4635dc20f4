// The files that a run leaves, whatever ends it: the weights after its last complete step, and
// those of its best evaluation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "common/base/error.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"
#include "tests/data/temp_dir.h"
#include "tests/job/test_job.h"

namespace muster::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Every weight falls by 1 in each step: W(v) is -v.
const WorkerBehaviour kFalling{
    .gradient = [](int64_t, int64_t slice, size_t) { return slice == 0 ? 1.0f : 0.0f; }};

class ModelsTest : public ::testing::Test {
 protected:
  config::Config Config(int64_t steps) const {
    config::Config config = SmallConfig(2, 2);
    config.mutable_run()->set_steps(steps);
    config.mutable_run()->set_dir(dir_.string());
    return config;
  }
  // A config with an evaluation every two steps.
  config::Config Evaluated(int64_t steps) const {
    config::Config config = Config(steps);
    config.mutable_evaluation()->set_every_steps(2);
    config.mutable_evaluation()->set_skip_final(false);
    config.mutable_evaluation()->set_batch(20);
    return config;
  }
  // Weights files, complete or not.
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      const std::string name = entry.path().filename();
      if (name.find("safetensors") != std::string::npos) names.push_back(name);
    }
    return names;
  }
  // Expects that all variables in the file have this value, and its metadata this step.
  void ExpectAll(const std::string& name, const Graph& graph, float value, int64_t step,
                 bool average = false) {
    SCOPED_TRACE(name);
    const SafetensorsReader file((dir_ / name).string());
    std::vector<float> weights(graph.arena_floats(), value);  // including padding
    EXPECT_EQ(LoadWeights(file, graph, {}, weights).variables.size(), graph.variables().size());
    EXPECT_THAT(weights, Each(value));
    EXPECT_EQ(StepOf(file.header().metadata), step);
    EXPECT_EQ(IsAverage(file.header().metadata), average);
  }

  const TempDir dir_;
};

TEST_F(ModelsTest, ARunWithoutADirectoryWritesNothing) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_.path());
  config::Config config = Evaluated(4);
  config.mutable_run()->clear_dir();
  TestJob job(config);
  job.test_samples = 40;
  RunWorkers(job, kFalling);
  job.Finish();
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  EXPECT_FALSE(std::filesystem::exists("/model.safetensors"));
}

// All evaluations of these workers have the same accuracy, so the first one stays the best.
TEST_F(ModelsTest, TheBestEvaluationsWeightsAreKept) {
  TestJob job(Evaluated(5));
  job.test_samples = 40;
  RunWorkers(job, kFalling);
  const uint64_t hash = job.Finish().weights_hash;
  EXPECT_THAT(Files(), UnorderedElementsAre("model.safetensors", "best.safetensors"));
  ExpectAll("best.safetensors", job.graph(), -2, 2);
  ExpectAll("model.safetensors", job.graph(), -5, 5);
  const auto metadata = [&](const char* file) {
    return SafetensorsReader((dir_ / file).string()).header().metadata;
  };
  EXPECT_EQ(metadata("model.safetensors").at("weights_hash"), fmt::format("{:016x}", hash));
  EXPECT_EQ(metadata("best.safetensors").at("test_accuracy"), "0.05");  // 1 of every 20
}

// e ← (e + w) / 2 from 0: -1.25 after 2 steps, -3.0625 after 4 and -4.03125 after 5.
TEST_F(ModelsTest, TheAverageIsTheProductWhereItIsEvaluated) {
  for (const bool use : {true, false}) {
    config::Config config = Evaluated(5);
    config.mutable_optimizer()->set_ema_decay(0.5);
    config.mutable_evaluation()->set_use_ema(use);
    TestJob job(config);
    job.test_samples = 40;
    RunWorkers(job, kFalling);
    job.Finish();
    ExpectAll("best.safetensors", job.graph(), use ? -1.25f : -2, 2, use);
    ExpectAll("model.safetensors", job.graph(), use ? -4.03125f : -5, 5, use);
    const char* const other = use ? "model-raw.safetensors" : "model-ema.safetensors";
    ExpectAll(other, job.graph(), use ? -5 : -4.03125f, 5, !use);
    EXPECT_THAT(Files(), UnorderedElementsAre("best.safetensors", "model.safetensors", other));
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      std::filesystem::remove_all(entry.path());
    }
  }
}

// A run was killed before its best weights were on the disk. Any checkpoint of that step has them,
// whether evaluated or not, the newest or an earlier one.
TEST_F(ModelsTest, TheBestWeightsAreWrittenAgain) {
  const WorkerBehaviour better{
      .gradient = kFalling.gradient,
      .correct = [](int64_t version, int64_t) { return version <= 4 ? version : int64_t{1}; }};
  const std::filesystem::path best = dir_ / "best.safetensors", old = dir_ / "old";
  for (const bool average : {false, true}) {
    for (const bool stale : {false, true}) {
      for (const int64_t stopped : {4, 5}) {
        SCOPED_TRACE(fmt::format("average {} stale {} stopped {}", average, stale, stopped));
        const auto run = [&](int64_t steps) {
          config::Config config = Evaluated(steps);
          config.mutable_checkpoint()->set_every_steps(1);
          config.mutable_checkpoint()->set_keep_last(3);
          if (average) config.mutable_optimizer()->set_ema_decay(0.5);
          config.mutable_evaluation()->set_use_ema(average);
          TestJob job(config);
          job.test_samples = 40;
          RunWorkers(job, better);
          job.Finish();
          if (steps == 6) {  // e ← (e + w) / 2
            ExpectAll("best.safetensors", job.graph(), average ? -3.0625f : -4, 4, average);
          }
        };
        run(2);
        std::filesystem::copy(best, old);
        for (int64_t steps = 4; steps <= stopped; ++steps) run(steps);  // each keeps its last
        const auto loss = [&] { return SafetensorsReader(best).header().metadata.at("test_loss"); };
        const std::string then = loss();
        std::filesystem::remove(best);
        if (stale) std::filesystem::copy(old, best);
        run(6);
        EXPECT_EQ(loss(), then);
        for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
          std::filesystem::remove_all(entry.path());
        }
      }
    }
  }
}

// Compares the whole file. With batch normalization it also contains the number of updates.
TEST_F(ModelsTest, WhatIsWrittenAgainIsTheSameToTheByte) {
  config::Config config = Evaluated(4);
  config::Layer& norm = *config.mutable_model()->mutable_layer(1);
  norm.clear_relu();
  norm.mutable_batch_norm();
  config.mutable_checkpoint()->set_every_steps(1);
  const WorkerBehaviour better{.gradient = kFalling.gradient,
                               .correct = [](int64_t version, int64_t) { return version; }};
  const auto run = [&] {
    TestJob job(config);
    job.test_samples = 40;
    RunWorkers(job, better);
    job.Finish();
    std::ifstream file(dir_ / "best.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string first = run();
  EXPECT_FALSE(first.empty());
  std::filesystem::remove(dir_ / "best.safetensors");
  EXPECT_TRUE(run() == first) << "best.safetensors differs";
}

// A worker is lost after some chunks of the next weights have been updated. The files have none of
// them.
TEST_F(ModelsTest, ALostWorkerCostsOnlyTheStepThatWasBroken) {
  config::Config config = Config(100);
  config.mutable_optimizer()->set_ema_decay(0.5);
  TestJob job(config);
  ExitCode code = ExitCode::kOk;
  {
    std::jthread other([&] {
      const auto client = job.Join(0);
      EXPECT_THROW(RunWorker(*client, kFalling), Error);
    });
    std::unique_ptr<Client> lost = job.Join(1);
    // Pushes only its last chunk in step 4 and leaves.
    OrderPart part;
    const WorkerBehaviour goes{.gradient = kFalling.gradient, .on_train = [&](const Order& order) {
                                 part = order.parts.at(0);
                                 if (order.version == 4) throw Error(ExitCode::kFailure, "gone");
                               }};
    try {
      RunWorker(*lost, goes, 1);
    } catch (const Error&) {
      const StepPlan& plan = lost->plan();
      lost->ReportLoss(4, part, 1, plan.Slice(plan.At(4), 1).size(), 1, 0);
      const size_t chunk = lost->chunks().size() - 1;
      lost->PushChunk(4, part, chunk);
      // Updated and published before this worker is lost.
      EXPECT_TRUE(lost->AwaitChunk(5, chunk));
    }
    lost.reset();
  }
  EXPECT_THAT(job.FinishError(&code), HasSubstr("rank 1"));
  ExpectAll("model.safetensors", job.graph(), -4, 4);
  // 0, -.5, -1.25, -2.125, -3.0625
  ExpectAll("model-ema.safetensors", job.graph(), -3.0625f, 4, true);
}

// A failed write is reported, makes the exit code 1, and leaves no partial file.
TEST_F(ModelsTest, WeightsThatCannotBeWrittenAreNoSuccess) {
  std::filesystem::create_directory(dir_ / "model.safetensors");
  TestJob job(Config(3));
  RunWorkers(job, kFalling);
  EXPECT_THAT(job.Finish().trouble, HasSubstr("model.safetensors: cannot be written"));
  EXPECT_THAT(Files(), UnorderedElementsAre("model.safetensors"));
}

// Writing the best weights is retried at the end.
TEST_F(ModelsTest, TheBestWeightsAreTriedAgain) {
  std::filesystem::create_directory(dir_ / "best.safetensors");
  TestJob job(Evaluated(40));
  job.test_samples = 40;
  WorkerBehaviour behaviour = kFalling;
  behaviour.before_step = [&](int64_t step) {
    if (step == 39) std::filesystem::remove(dir_ / "best.safetensors");
  };
  RunWorkers(job, behaviour);
  job.Finish();
  ExpectAll("best.safetensors", job.graph(), -2, 2);
}

}  // namespace
}  // namespace muster::testing
