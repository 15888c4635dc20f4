// Loading configs, and how settings affect each other.
#include "common/config/config.h"

#include <fmt/core.h>

#include <cstdlib>

#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/config/resolved.h"
#include "common/config/update_settings.h"
#include "tests/config/config_fixture.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST_F(ConfigTest, ReadsDefaultsAndTheModelFile) {
  const config::Config config = LoadConfig(Config(""), {});
  EXPECT_EQ(config.run().epochs(), 2);
  EXPECT_FALSE(config.cluster().has_workers());  // depends on the machine
  EXPECT_EQ(config.model().layer_size(), 2);
  EXPECT_FALSE(config.has_model_file());
}

TEST_F(ConfigTest, SettingsOverride) {
  const std::string path = Config("cluster { workers: 2 }");
  const auto load = [&](const std::string& setting) {
    return LoadConfig(path, {ParseSetting(setting)});
  };
  EXPECT_EQ(load("cluster.workers=3").cluster().workers(), 3u);
  EXPECT_EQ(load("cluster.transport=TCP").cluster().transport(), config::Cluster::TCP);
  EXPECT_EQ(load("cluster.transport=Local").cluster().transport(), config::Cluster::LOCAL);
  EXPECT_EQ(load("data.dir=/a b/\"c\"").data().dir(), "/a b/\"c\"");
  EXPECT_EQ(load("data.dir=\"/quoted\"").data().dir(), "/quoted");
  const std::string home = std::getenv("HOME") == nullptr ? "~" : std::getenv("HOME");
  EXPECT_EQ(load("data.dir=~/d").data().dir(), home + "/d");
  EXPECT_EQ(load("run.dir=~/d").run().dir(), home + "/d");
  EXPECT_EQ(load("run.initial_weights=~/w").run().initial_weights(), home + "/w");
  EXPECT_EQ(load("data.image_folder.exclude=~/l").data().image_folder().exclude(), home + "/l");
  EXPECT_EQ(load("data.dir=~d").data().dir(), "~d");
  EXPECT_EQ(load("optimizer={ type: MOMENTUM momentum: 0.5 }").optimizer().momentum(), 0.5f);
  EXPECT_EQ(load("model.layer[fc].dense.units=12").model().layer(0).dense().units(), 12u);
  EXPECT_EQ(load("model.layer[0].dense.units=13").model().layer(0).dense().units(), 13u);
  // Another member of a oneof replaces the one in the file.
  EXPECT_EQ(load("run.steps=7").run().length_case(), config::Run::kSteps);
  EXPECT_EQ(load("run.batch_per_worker=7").run().batch_case(), config::Run::kBatchPerWorker);
  // The last one wins.
  EXPECT_EQ(LoadConfig(path, {ParseSetting("run.seed=1"), ParseSetting("run.seed=9")}).run().seed(),
            9u);
}

TEST_F(ConfigTest, SettingsThatExcludeEachOther) {
  EXPECT_THAT(ErrorOf(Config(""), {"run.epochs=2", "run.steps=7"}),
              AllOf(StartsWith("--set run.steps=7"), HasSubstr("--set run.epochs=2")));
  EXPECT_THAT(ErrorOf(Config(""), {"run.batch_per_worker=3", "run.global_batch=4"}),
              AllOf(HasSubstr("run.batch_per_worker"), HasSubstr("run.global_batch")));
  // The file's setting is replaced.
  EXPECT_EQ(ErrorOf(Config(""), {"run.steps=7"}), "no error");
}

struct Refused {
  const char* text;  // line 2 of the config
  const char* key;
};

TEST_F(ConfigTest, SettingsThatContradictOneAnother) {
  for (const Refused& one : {
           Refused{"cluster { workers: 2 min_workers: 3 }", "cluster.min_workers"},
           {"cluster { workers: 2 max_workers: 1 }", "cluster.max_workers"},
           {"cluster { wire_dtype: BF16 transport: LOCAL }", "cluster.wire_dtype"},
           {"cluster { wire_dtype: FP16 } worker { precision: FP16 }", "cluster.wire_dtype"},
           {"worker { convolution: DIRECT backend: CUDA }", "worker.convolution"},
           {"worker { devices: \"nine\" }", "worker.devices"},
           {"worker { gpu_memory_fraction: 0.6 workers_per_gpu: 2 }", "worker.gpu_memory_fraction"},
           {"evaluation { use_ema: true }", "evaluation.use_ema"},
           {"evaluation { confusion_matrix: true batch: 16385 }", "evaluation.batch"},
           {"optimizer { type: ADAMW decay_type: COUPLED }", "optimizer.decay_type"},
       }) {
    EXPECT_THAT(ErrorOf(Config(one.text)), StartsWith(dir_ + "/c.txtpb:2: " + one.key + ": "))
        << one.text;
  }
  for (const Refused& one : {
           Refused{"type: STEP", "interval_samples"},
           {"type: STEP interval_samples: 5 milestone_samples: 5", "milestone_samples[0]"},
           {"type: EXPONENTIAL", "interval_samples"},
           {"type: STEP milestone_samples: [5, 9, 9]", "milestone_samples[2]"},
           {"type: STEP milestone_samples: [5, 9] warmup_samples: 5", "milestone_samples[0]"},
           {"type: COSINE warmup_samples: 100 total_samples: 100", "warmup_samples"},
           {"type: PLATEAU factor: 1", "factor"},
           {"type: PLATEAU end: 0.6", "end"},
       }) {
    EXPECT_THAT(ErrorOf(Rate(one.text)),
                StartsWith(dir_ + "/c.txtpb:2: learning_rate." + one.key + ": "))
        << one.text;
  }
  for (const char* run : {"run { epochs: 1 }", "run { global_batch: 8 }"}) {
    EXPECT_THAT(ErrorOf(Config("", run)), StartsWith(dir_ + "/c.txtpb:1: run: "));
  }
  EXPECT_THAT(
      ErrorOf(Config("cluster { workers: 4 }", "run { epochs: 1 global_batch: 8 slices: 3 }")),
      AllOf(StartsWith(dir_ + "/c.txtpb:1: run.slices: "), HasSubstr("--workers 3")));
}

TEST_F(ConfigTest, APlateauNeedsEvaluationsAndImages) {
  const char* const plateau = "learning_rate.type=PLATEAU";
  EXPECT_EQ(ErrorOf(Config(""), {plateau}), "no error");
  EXPECT_THAT(ErrorOf(Config(""), {plateau, "evaluation.every_epochs=0"}),
              HasSubstr("learning_rate.type: "));
  EXPECT_THAT(
      ErrorOf(Config(""), {plateau, "data={ format: SYNTHETIC synthetic { test_samples: 0 } }"}),
      HasSubstr("learning_rate.type: "));
}

// A config serves machines with and without GPUs, and a script may set what another setting makes
// meaningless.
TEST_F(ConfigTest, SettingsWithoutEffectAreNotRefused) {
  EXPECT_EQ(ErrorOf(Config("optimizer { momentum: 0.5 beta1: 0.5 }"),
                    {"worker.precision=BF16", "worker.convolution=GEMM", "optimizer.type=ADAM",
                     "run.max_skipped_steps=3", "cluster.max_restarts=1",
                     "cluster.on_lost_worker=ABORT", "learning_rate.milestone_samples=[9, 5]"}),
            "no error");
}

// The size of synthetic data is known.
TEST_F(ConfigTest, MadeUpDataDecide) {
  EXPECT_THAT(ErrorOf(Config(""), {"data={ format: SYNTHETIC synthetic { train_samples: 640 } }",
                                   "run.trace_file=t", "run.trace_first_step=20"}),
              HasSubstr("run.trace_first_step: "));
  EXPECT_THAT(
      ErrorOf(Config(""), {"data={ format: SYNTHETIC synthetic { test_samples: 1000000000 } }"}),
      HasSubstr("set evaluation.batch to 954 or more"));
  EXPECT_THAT(
      ErrorOf(Config(""), {"data={ format: SYNTHETIC synthetic { train_samples: 1000000000 } }",
                           "run.steps=1000000000000", "run.global_batch=16777216"}),
      HasSubstr("1,000,000,000,000 steps"));
  EXPECT_THAT(ErrorOf(Config(""), {"data={ format: SYNTHETIC synthetic { train_samples: 9 } }",
                                   "run.global_batch=10", "run.drop_last=true"}),
              HasSubstr("every epoch would be empty"));
}

TEST_F(ConfigTest, BatchNormNeedsMoreThanOneValue) {
  Write("model.txtpb", "layer { name: \"norm\" batch_norm {} }\n" + std::string(kModel));
  EXPECT_EQ(ErrorOf(Config("", "run { steps: 1 global_batch: 2 slices: 2 }")), "no error");
  Write("model.txtpb", R"(
layer { name: "flat" dense { units: 10 } }
layer { name: "norm" batch_norm {} }
layer { name: "loss" softmax_cross_entropy {} }
)");
  EXPECT_THAT(ErrorOf(Config("", "run { steps: 1 global_batch: 3 slices: 2 }")),
              StartsWith(dir_ + "/model.txtpb:3: layer \"norm\""));
}

// A written config has the values in use, and loads to the same config.
TEST_F(ConfigTest, EveryTypeIsWrittenAndLoadedAgain) {
  const auto written = [&](const std::string& path) {
    LoadedConfig loaded = LoadToLaunch(path, {ParseSetting("data.dir=data")});
    ResolveConfig(loaded.config, 4);
    const std::string copy = dir_ + "/resolved.txtpb", second = dir_ + "/again.txtpb";
    WriteRunConfig(loaded.written, loaded.config, copy);
    loaded = LoadToLaunch(copy, {});
    config::Config& again = loaded.config;
    ResolveConfig(again, 2);  // on another machine
    WriteRunConfig(loaded.written, again, second);
    std::ifstream a(copy), b(second);
    const std::string first_text((std::istreambuf_iterator<char>(a)), {});
    EXPECT_EQ(first_text, std::string((std::istreambuf_iterator<char>(b)), {}));
    EXPECT_TRUE(std::filesystem::path(again.data().dir()).is_absolute());
    EXPECT_EQ(again.cluster().workers(), 4u);
    EXPECT_EQ(again.run().slices(), 8u);
    EXPECT_THAT(first_text, AllOf(HasSubstr("seed: 1"), HasSubstr("start_s: 60")));
    return again;
  };
  for (const std::string& type : OptimizerTypes()) {
    const config::Optimizer optimizer =
        written(Config("optimizer { type: " + type + " weight_decay: 0.1 }")).optimizer();
    EXPECT_EQ(config::Optimizer::Type_Name(optimizer.type()), type);
    EXPECT_TRUE(optimizer.has_decay_type());
    if (type.starts_with("ADAM")) {
      EXPECT_EQ(optimizer.decay_type(),
                type == "ADAM" ? config::Optimizer::COUPLED : config::Optimizer::DECOUPLED);
      EXPECT_TRUE(optimizer.has_beta2());
    }
    const bool has_momentum = type == "MOMENTUM" || type == "NESTEROV" || type == "RMSPROP";
    EXPECT_EQ(optimizer.has_momentum(), has_momentum) << type;
    if (has_momentum) {
      EXPECT_EQ(optimizer.momentum(), type == "RMSPROP" ? 0.0f : 0.9f);
      EXPECT_FALSE(optimizer.has_beta2());
    }
  }
  for (const std::string rate :
       {"type: CONSTANT warmup_samples: 7", "type: STEP interval_samples: 7",
        "type: STEP milestone_samples: [7, 9]", "type: EXPONENTIAL interval_samples: 7",
        "type: POLYNOMIAL power: 2", "type: COSINE end: 0.01 scaling: LINEAR base_workers: 2",
        "type: ONE_CYCLE"}) {
    const config::LearningRate again = written(Rate(rate)).learning_rate();
    EXPECT_TRUE(again.has_scaling()) << rate;
    EXPECT_EQ(again.has_warmup_samples(), again.type() != config::LearningRate::ONE_CYCLE);
    EXPECT_EQ(again.has_peak_fraction(), again.type() == config::LearningRate::ONE_CYCLE);
  }
}

TEST_F(ConfigTest, DataDirectoryIsNeededToRun) {
  config::Config config = LoadConfig(Config(""), {});
  EXPECT_THROW(ResolveConfig(config, 2), Error);
}

TEST_F(ConfigTest, ClassesHaveTheNamesThatTheDataGiveThem) {
  const auto names = [&](std::vector<std::string> texts) {
    std::vector<Setting> settings;
    for (const std::string& text : texts) settings.push_back(ParseSetting(text));
    settings.push_back(ParseSetting("data.dir=" + dir_));
    config::Config config = LoadConfig(Config(""), settings);
    ResolveConfig(config, 2);
    const auto& list = config.data().class_names();
    return std::vector<std::string>(list.begin(), list.end());
  };
  EXPECT_THAT(names({}), SizeIs(0));
  std::filesystem::create_directory(dir_ + "/cifar-10-batches-bin");
  Write("cifar-10-batches-bin/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nbig truck\r\n\n");
  EXPECT_THAT(names({}), ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "big truck"));
  Write("batches.meta.txt", "too\nfew\n");
  EXPECT_THAT(names({}), SizeIs(0));
  EXPECT_THAT(names({"data.class_names=a, b c,d,e,f,g,h,i,j,k"}),
              ElementsAre("a", "b c", "d", "e", "f", "g", "h", "i", "j", "k"));
  EXPECT_THAT(names({"data.format=MNIST"}),
              ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
  EXPECT_THAT(ErrorOf(Config(""), {"data.class_names=[\"cat\", \"dog\"]"}),
              HasSubstr("expected 10 names, one for each class, got 2"));
  EXPECT_THAT(ErrorOf(Config(""), {"data.format=SYNTHETIC", "data.class_names=[\"cat\", \"dog\"]"}),
              HasSubstr("data.synthetic.classes=2"));
}

TEST_F(ConfigTest, AClassWeightForEachClass) {
  EXPECT_THAT(ErrorOf(Config(""), {"data.class_weights=[1, 2]"}),
              HasSubstr("data.class_weights: expected 10 numbers, one for each class, got 2"));
  const std::string path = Write("weights.txtpb", R"(run { epochs: 2 global_batch: 64 }
learning_rate { base: 0.1 }
model_file: "model.txtpb"
data {
  format: CIFAR10
  class_weights: [1, 2]
})");
  EXPECT_THAT(ErrorOf(path),
              StartsWith(dir_ + "/weights.txtpb:6: data.class_weights: expected 10 numbers"));
  EXPECT_THAT(ErrorOf(Config(""),
                      {"data.format=NPZ", "data.npz={ height: 4 width: 4 channels: 3 classes: 10 }",
                       "data.preprocess.mean=[0.5]"}),
              HasSubstr("data.preprocess.mean: expected one number for each of 3 channels, got 1"));
  EXPECT_THAT(ErrorOf(Config(""), {"data.preprocess.stddev=[63, 62]"}),
              HasSubstr("data.preprocess.stddev: expected one number for each of 3 channels"));
  EXPECT_THAT(ErrorOf(Config(""), {"data.class_weights=[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"}),
              HasSubstr("expected at least one above 0"));
  EXPECT_THAT(ErrorOf(Config(""), {"data.class_weights=[1, 1, 1, 1, -1, 1, 1, 1, 1, 1]"}),
              HasSubstr("data.class_weights[4]"));
  const config::Config config =
      LoadConfig(Config(""), {ParseSetting("data.class_weights=[0, 1, 1, 1, 1, 1, 1, 1, 1, 2.5]")});
  EXPECT_THAT(ClassWeights(config.data()), ElementsAre(0, 1, 1, 1, 1, 1, 1, 1, 1, 2.5f));
}

TEST_F(ConfigTest, OneLogitForTwoClasses) {
  const auto error = [&](const std::string& loss, int classes, int units) {
    Write("model.txtpb", fmt::format("layer {{ name: \"fc\" dense {{ units: {} }} }}\n"
                                     "layer {{ name: \"loss\" {} {{}} }}\n",
                                     units, loss));
    return ErrorOf(Config(""), {"data.format=SYNTHETIC",
                                fmt::format("data.synthetic={{ height: 4 width: 4 channels: 1 "
                                            "classes: {} train_samples: 64 test_samples: 64 }}",
                                            classes)});
  };
  EXPECT_EQ(error("sigmoid_cross_entropy", 2, 1), "no error");
  EXPECT_EQ(error("sigmoid_cross_entropy", 2, 2), "no error");
  EXPECT_EQ(error("sigmoid_cross_entropy", 3, 3), "no error");
  EXPECT_THAT(error("sigmoid_cross_entropy", 3, 1), HasSubstr("expected at least 3 logits"));
  EXPECT_THAT(error("softmax_cross_entropy", 2, 1), HasSubstr("expected at least 2 classes"));
  EXPECT_THAT(error("mean_squared_error", 2, 1), HasSubstr("expected at least 2 classes"));
}

TEST(Batch, BothWays) {
  config::Config config;
  config.mutable_cluster()->set_workers(3);
  config.mutable_run()->set_global_batch(100);
  EXPECT_DOUBLE_EQ(ResolveBatch(config).per_worker, 100.0 / 3);
  config.mutable_run()->set_batch_per_worker(64);
  EXPECT_EQ(ResolveBatch(config).global_batch, 192);
}

}  // namespace
}  // namespace muster::testing
