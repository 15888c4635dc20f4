// Compares real jobs with the oracle, for several numbers of workers and every transport.
#include "tests/oracle/oracle.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/config/config.h"
#include "common/config/update_settings.h"
#include "tests/base/paths.h"
#include "tests/data/npz_file.h"
#include "tests/e2e/real_job.h"
#include "worker/data/cifar10.h"
#include "worker/data/validation_split.h"

namespace muster::testing {
namespace {

struct Case {
  std::string name;
  std::vector<std::string> settings;  // added to the tiny config of the e2e tests
};

class OracleTest : public RealJob, public ::testing::WithParamInterface<Case> {};

TEST_P(OracleTest, HasTheBitsAndTheEvaluationOfTheJob) {
  std::optional<oracle::Result> expected;
  for (const char* workers : {"1", "3"}) {
    std::vector<std::string> settings = GetParam().settings;
    settings.push_back(std::string("cluster.workers=") + workers);
    const std::string run = "run" + std::string(workers);
    ASSERT_EQ(Start(run, settings)->Wait(60), 0) << Slurp(Path(run) / "server.log");
    if (!expected) {  // the run's config has all settings resolved
      config::Config config = LoadConfig(Path(run) / "config.txtpb", {});
      ResolveConfig(config, 1);
      expected = oracle::Train(config);
    }
    const nlohmann::json last = Metrics(run).back();
    EXPECT_EQ(last["step"], expected->steps);
    EXPECT_EQ(last["weights_hash"], fmt::format("{:016x}", expected->weights_hash))
        << workers << " workers";
    const std::string set = last.contains("validation_loss") ? "validation" : "test";
    EXPECT_EQ(last[set + "_accuracy"].get<double>(), expected->accuracy);
    EXPECT_EQ(last[set + "_loss"].get<double>(), expected->loss);
  }
}

const Case kCases[] = {
    {"AsItIs", {}},
    {"Tcp", {"cluster.transport=TCP"}},
    {"Ipc", {"cluster.transport=IPC", "run.seed=7"}},
    {"OneSlice", {"run.slices=3"}},
    {"ManySlices", {"run.slices=16"}},
    {"EmptySlices", {"run.global_batch=3", "run.steps=20", "evaluation.every_epochs=0"}},
    {"DecayOfWeightsAlone",
     {"optimizer={ type: SGD weight_decay: 0.001 decay_norm_and_bias: false }"}},
    {"RmspropWithMomentum",
     {"optimizer={ type: RMSPROP momentum: 0.5 }", "learning_rate.base=0.001"}},
    {"ClipValue", {"optimizer.clip_value=0.01"}},
    {"ClipNorm", {"optimizer.clip_norm=0.05"}},
    {"ClipBothInBf16",
     {"optimizer.clip_value=0.02", "optimizer.clip_norm=0.1", "cluster.wire_dtype=BF16"}},
    {"Bf16", {"cluster.wire_dtype=BF16"}},
    {"Fp16", {"cluster.wire_dtype=FP16"}},
    {"Average", {"optimizer.ema_decay=0.9", "evaluation.use_ema=true"}},
    {"Flip", {"evaluation.flip=true", "evaluation.batch=7"}},
    {"Step",
     {"learning_rate={ type: STEP base: 0.02 interval_samples: 120 factor: 0.5 warmup_samples: 70 "
      "}"}},
    {"Milestones", {"learning_rate={ type: STEP base: 0.02 milestone_samples: [100, 350] }"}},
    {"Exponential",
     {"learning_rate={ type: EXPONENTIAL base: 0.02 interval_samples: 100 factor: 0.7 }"}},
    {"Polynomial",
     {"learning_rate={ type: POLYNOMIAL base: 0.02 power: 2 end: 0.001 warmup_samples: 50 }"}},
    {"Cosine", {"learning_rate={ type: COSINE base: 0.02 warmup_samples: 100 warmup_start: 0.1 }"}},
    {"OneCycle", {"learning_rate={ type: ONE_CYCLE base: 0.02 }"}},
    {"Plateau",
     {"learning_rate={ type: PLATEAU base: 0.02 plateau_patience: 1 factor: 0.5 }",
      "evaluation.every_steps=2"}},
    {"Patience", {"evaluation.every_steps=2", "evaluation.patience=1"}},
    {"Direct", {"worker.convolution=DIRECT", "run.epochs=1"}},
    {"Split",
     {"data.validation_fraction=0.3", "evaluation.every_steps=2", "evaluation.patience=2"}},
    {"ClassWeightsAndMixup",
     {"data.class_weights=[1, 2, 0.5, 1, 0, 3, 1, 1, 1, 1]", "data.preprocess.mixup_alpha=0.4"}},
};

std::vector<Case> Optimizers() {
  std::vector<Case> cases;
  for (const std::string& type : OptimizerTypes()) {
    const std::string settings = "type: " + type + " weight_decay: 0.01 beta1: 0.8";
    cases.push_back({type, {"optimizer={ " + settings + " }", "learning_rate.base=0.002"}});
  }
  return cases;
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(All, OracleTest, ::testing::ValuesIn(kCases), kName);
INSTANTIATE_TEST_SUITE_P(Optimizers, OracleTest, ::testing::ValuesIn(Optimizers()), kName);

class OracleOfConfigs : public RealJob {};

// Equals training on a set without the held-out samples.
TEST_F(OracleOfConfigs, ASplitTrainsOnTheOthers) {
  constexpr double kFraction = 0.3;
  const Outcome job = Succeeded(Launch({"data.validation_fraction=0.3"}));
  std::filesystem::create_directory(Path("rest"));
  std::filesystem::copy(Path("data") / kCifar10TestFile, Path("rest"));
  int64_t sample = 0;
  for (const char* const file : kCifar10TrainFiles) {
    const std::string records = Slurp(Path("data") / file);
    std::string kept;
    for (size_t at = 0; at < records.size(); at += kCifar10RecordBytes) {
      const bool held_back = IsHeldBack(std::to_string(sample++), kFraction, 1);
      if (!held_back) kept += records.substr(at, kCifar10RecordBytes);
    }
    (void)Write(std::string("rest/") + file, kept);
  }
  config::Config config = LoadConfig(Path("run0") / "config.txtpb", {});
  config.mutable_data()->clear_validation_fraction();
  config.mutable_data()->set_dir(Path("rest"));
  ResolveConfig(config, 1);
  EXPECT_EQ(job.hash(), fmt::format("{:016x}", oracle::Train(config).weights_hash));
}

TEST_F(OracleOfConfigs, BatchNormalisationAndResiduals) {
  const Outcome job = Muster({"launch", ConfigPath("cifar10_resnet20.txtpb"), "--data",
                              Path("data"), "--run-dir", Path("run"), "--steps", "3", "--workers",
                              "3", "--set", "run.global_batch=32", "--set", "run.slices=4"},
                             "run");
  ASSERT_EQ(job.exit_code, 0) << job.log;
  config::Config config = LoadConfig(Path("run") / "config.txtpb", {});
  ResolveConfig(config, 1);
  EXPECT_EQ(job.hash(), fmt::format("{:016x}", oracle::Train(config).weights_hash));
}

TEST_F(OracleOfConfigs, ValuesOfArrays) {
  std::vector<float> x, y;
  for (int i = 0; i < 40; ++i) {
    x.insert(x.end(), {static_cast<float>(i % 7), static_cast<float>(i % 3)});
    y.push_back(static_cast<float>(i % 5) / 3);
  }
  const std::string inputs = Npy({40, 2}, x), values = Npy({40}, y);
  WriteNpzFile(Path("values.npz"),
               {{"x_train", inputs}, {"y_train", values}, {"x_test", inputs}, {"y_test", values}});
  const std::string config_path = Write("values.txtpb", R"(
    run { steps: 12 global_batch: 16 slices: 4 }
    data { format: NPZ preprocess { mean: [3, 1] stddev: [2, 0.7] } }
    model {
      layer { name: "hidden" dense { units: 5 } }
      layer { name: "relu" relu {} }
      layer { name: "value" dense {} }
      layer { name: "loss" mean_squared_error {} }
    }
    optimizer { type: ADAM }
    learning_rate { base: 0.01 }
  )");
  const Outcome job = Muster({"launch", config_path, "--data", Path("values.npz"), "--run-dir",
                              Path("run"), "--workers", "3"},
                             "run");
  ASSERT_EQ(job.exit_code, 0) << job.log;
  config::Config config = LoadConfig(Path("run") / "config.txtpb", {});
  ResolveConfig(config, 1);
  const oracle::Result expected = oracle::Train(config);
  EXPECT_EQ(job.hash(), fmt::format("{:016x}", expected.weights_hash));
  EXPECT_EQ(job.metrics.back()["test_loss"].get<double>(), expected.loss);
}

}  // namespace
}  // namespace muster::testing
