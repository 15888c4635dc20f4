// What a config says, and what its settings do to each other.
#include "common/config/config.h"

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
  EXPECT_FALSE(config.cluster().has_workers());  // the machine's
  EXPECT_EQ(config.model().layer_size(), 2);
  EXPECT_FALSE(config.has_model_file());
}

TEST_F(ConfigTest, WhatAnEvaluationGivesNeedsOne) {
  const std::vector<std::string> never{"evaluation.every_epochs=0", "evaluation.skip_final=true",
                                       "evaluation.confusion_matrix=true"};
  EXPECT_THAT(ErrorOf(Config(""), never),
              AllOf(HasSubstr("evaluation.confusion_matrix"), HasSubstr("skip_final")));
  const std::vector<std::string> final{"evaluation.every_epochs=0",
                                       "evaluation.confusion_matrix=true"};
  EXPECT_EQ(ErrorOf(Config(""), final), "no error");
  for (const char* wanted : {"evaluation.confusion_matrix=true", "evaluation.stop_at_accuracy=0.5",
                             "evaluation.patience=2", "learning_rate.type=PLATEAU"}) {
    EXPECT_THAT(
        ErrorOf(Config(""), {"data={ format: SYNTHETIC synthetic { test_samples: 0 } }", wanted}),
        HasSubstr("needs test images"));
  }
  for (const char* wanted :
       {"evaluation.stop_at_accuracy=0.5", "evaluation.patience=2", "learning_rate.type=PLATEAU"}) {
    EXPECT_THAT(ErrorOf(Config(""), {"evaluation.every_epochs=0", wanted}),
                HasSubstr("needs evaluations during the run: expected evaluation.every_epochs or "
                          "every_steps"));
    EXPECT_EQ(
        ErrorOf(Config(""), {"evaluation.every_epochs=0", "evaluation.every_steps=5", wanted}),
        "no error");
  }
}

TEST_F(ConfigTest, APlateausSettings) {
  const auto error = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> all{"learning_rate.type=PLATEAU", "learning_rate.base=0.5"};
    all.insert(all.end(), settings.begin(), settings.end());
    return ErrorOf(Config(""), all);
  };
  EXPECT_EQ(error({"learning_rate.factor=0.5", "learning_rate.end=0.05",
                   "learning_rate.plateau_patience=1", "learning_rate.plateau_min_delta=0.01",
                   "learning_rate.warmup_samples=10"}),
            "no error");
  EXPECT_THAT(error({"learning_rate.factor=1"}),
              HasSubstr("expected less than 1 for type PLATEAU, got 1"));
  EXPECT_THAT(error({"learning_rate.end=0.6"}), HasSubstr("expected at most base, 0.5"));
  EXPECT_THAT(error({"learning_rate.plateau_patience=0"}), HasSubstr("plateau_patience"));
  EXPECT_THAT(error({"learning_rate.interval_samples=9"}), HasSubstr("contradicts type PLATEAU"));
  EXPECT_THAT(ErrorOf(Config(""), {"learning_rate.plateau_patience=3"}),
              HasSubstr("it is for type PLATEAU"));
}

TEST_F(ConfigTest, ABackendIsAskedForWhatItCan) {
  const std::string path = Config("");
  EXPECT_THAT(ErrorOf(path, {"worker.convolution=DIRECT", "worker.backend=CUDA"}),
              HasSubstr("expected AUTO, GEMM or CUDNN"));
  // One config for machines with a GPU and without.
  for (const char* const device :
       {"worker.backend=CUDA", "worker.backend=CPU", "worker.devices=auto", "worker.devices=cpu",
        "worker.threads=1"}) {
    EXPECT_EQ(ErrorOf(path, {"worker.precision=BF16", "worker.convolution=GEMM", device}),
              "no error");
  }
}

// A script that sets defaults must not fail for one that another setting makes meaningless.
TEST_F(ConfigTest, SettingsWithoutEffectAreNotRefused) {
  const std::string path = Config("");
  EXPECT_EQ(ErrorOf(path, {"run.max_skipped_steps=3"}), "no error");
  EXPECT_EQ(ErrorOf(path, {"cluster.max_restarts=1", "cluster.on_lost_worker=ABORT"}), "no error");
}

TEST_F(ConfigTest, SettingsThatContradictOthersAreRefused) {
  const std::string path = Config("");
  // Of made-up data the length is known.
  EXPECT_THAT(ErrorOf(path, {"data={ format: SYNTHETIC synthetic { train_samples: 640 } }",
                             "run.trace_file=t", "run.trace_first_step=20"}),
              HasSubstr("expected steps of this run, 0 to 19, got 20 to 29"));
  EXPECT_THAT(ErrorOf(path, {"cluster.workers=2", "cluster.min_workers=3"}),
              HasSubstr("cluster.min_workers: 3: expected at most cluster.workers, which is 2"));
  EXPECT_THAT(ErrorOf(path, {"cluster.workers=2", "cluster.max_workers=1"}),
              HasSubstr("cluster.max_workers: 1: expected at least cluster.workers, which is 2"));
  EXPECT_THAT(ErrorOf(path, {"cluster.wire_dtype=BF16", "cluster.transport=LOCAL"}),
              AllOf(HasSubstr("BF16"), HasSubstr("LOCAL")));
}

TEST_F(ConfigTest, NamesOfAnEnumMayBeWrittenInAnyCaseOnTheCommandLine) {
  const auto load = [&](const std::string& setting) {
    return LoadConfig(Config(""), {ParseSetting(setting)});
  };
  EXPECT_EQ(load("cluster.transport=tcp").cluster().transport(), config::Cluster::TCP);
  EXPECT_EQ(load("cluster.transport=Local").cluster().transport(), config::Cluster::LOCAL);
  EXPECT_EQ(load("run.on_nonfinite=skip_step").run().on_nonfinite(), config::Run::SKIP_STEP);
  EXPECT_THAT(ErrorOf(Config(""), {"cluster.transport=tpc"}), HasSubstr("\"TCP\""));
  // Inside of a message, too, and nothing that only looks like one.
  EXPECT_EQ(load("optimizer={\n\tweight_decay: 0.5 type: adamw }").optimizer().type(),
            config::Optimizer::ADAMW);
  const config::Data data = load("data={format: cifar10 dir: \"cifar10\"}").data();
  EXPECT_EQ(data.format(), config::Data::CIFAR10);
  EXPECT_EQ(data.dir(), "cifar10");
  // Text format is exact; the right name is said.
  EXPECT_THAT(ErrorOf(Config("cluster { transport: tcp }")),
              AllOf(HasSubstr("unknown value tcp"), HasSubstr("\"TCP\"")));
}

TEST_F(ConfigTest, SettingsOverride) {
  const std::string path = Config("cluster { workers: 2 }");
  const auto load = [&](const std::string& setting) {
    return LoadConfig(path, {ParseSetting(setting)});
  };
  EXPECT_EQ(load("cluster.workers=3").cluster().workers(), 3u);
  EXPECT_EQ(load("cluster.transport=TCP").cluster().transport(), config::Cluster::TCP);
  EXPECT_EQ(load("data.dir=/a b/\"c\"").data().dir(), "/a b/\"c\"");
  EXPECT_EQ(load("data.dir=\"/quoted\"").data().dir(), "/quoted");
  EXPECT_EQ(load("optimizer={ type: MOMENTUM momentum: 0.5 }").optimizer().momentum(), 0.5f);
  EXPECT_EQ(load("model.layer[fc].dense.units=12").model().layer(0).dense().units(), 12u);
  EXPECT_EQ(load("model.layer[0].dense.units=13").model().layer(0).dense().units(), 13u);
  // Another member of a oneof takes the place of the one in the file.
  EXPECT_EQ(load("run.steps=7").run().length_case(), config::Run::kSteps);
  EXPECT_EQ(load("run.batch_per_worker=7").run().batch_case(), config::Run::kBatchPerWorker);
  // What belonged to the type in the file goes with it.
  const std::string momentum = Config("optimizer { type: MOMENTUM momentum: 0.5 }");
  EXPECT_FALSE(
      LoadConfig(momentum, {ParseSetting("optimizer.type=SGD")}).optimizer().has_momentum());
  // The last one wins.
  EXPECT_EQ(LoadConfig(path, {ParseSetting("run.seed=1"), ParseSetting("run.seed=9")}).run().seed(),
            9u);
}

TEST_F(ConfigTest, TheResolvedFileSaysTheSame) {
  for (const std::string extra :
       {"", "optimizer { type: MOMENTUM }", "cluster { workers: 3 transport: TCP }"}) {
    config::Config config = LoadConfig(Config(extra), {ParseSetting("data.dir=data")});
    ResolveConfig(config, 8);
    EXPECT_EQ(config.cluster().workers(), extra.starts_with("cluster") ? 3u : 4u);
    EXPECT_EQ(config.run().slices(), config.cluster().workers());
    EXPECT_EQ(config.worker().threads(), 1u);
    EXPECT_TRUE(std::filesystem::path(config.data().dir()).is_absolute());
    const std::string copy = dir_ + "/resolved.txtpb";
    WriteConfig(config, copy);
    config::Config again = LoadConfig(copy, {});
    ResolveConfig(again, 2);  // on another machine
    WriteConfig(again, dir_ + "/again.txtpb");
    std::ifstream a(copy), b(dir_ + "/again.txtpb");
    const std::string first((std::istreambuf_iterator<char>(a)), {}),
        second((std::istreambuf_iterator<char>(b)), {});
    EXPECT_EQ(first, second);
    EXPECT_THAT(first,
                AllOf(HasSubstr("seed: 1"), HasSubstr("start_s: 60"), HasSubstr("units: 10"),
                      HasSubstr("workers: "), HasSubstr("slices: "), HasSubstr("threads: 1")));
  }
}

// A field that its message's type makes no use of.
TEST_F(ConfigTest, SettingsThatExcludeEachOther) {
  EXPECT_THAT(ErrorOf(Config(""), {"run.epochs=2", "run.steps=7"}),
              AllOf(StartsWith("--set run.steps=7"), HasSubstr("--set run.epochs=2")));
  EXPECT_THAT(ErrorOf(Config(""), {"run.batch_per_worker=3", "run.global_batch=4"}),
              AllOf(HasSubstr("run.batch_per_worker"), HasSubstr("run.global_batch")));
  // One of the file is replaced.
  EXPECT_EQ(ErrorOf(Config(""), {"run.steps=7"}), "no error");
}

TEST_F(ConfigTest, BatchNormNeedsMoreThanOneValue) {
  Write("model.txtpb", R"(
layer { name: "flat" dense { units: 10 } }
layer { name: "norm" batch_norm {} }
layer { name: "loss" softmax_cross_entropy {} }
)");
  const std::string path = Config("cluster { workers: 2 }");
  EXPECT_THAT(ErrorOf(path, {"run.global_batch=3"}),
              AllOf(HasSubstr("\"norm\""), HasSubstr("batch of 3 in 2 slices")));
  EXPECT_EQ(ErrorOf(path, {"run.global_batch=4"}), "no error");
  EXPECT_THAT(ErrorOf(path, {"run.global_batch=4", "run.slices=3"}), HasSubstr("3 slices"));
}

TEST_F(ConfigTest, SettingsOfAnotherTypeContradict) {
  const std::string where = dir_ + "/c.txtpb:2: ";
  EXPECT_THAT(ErrorOf(Config("optimizer { type: ADAM momentum: 0.5 }")),
              AllOf(StartsWith(where), HasSubstr("optimizer.momentum: contradicts type ADAM"),
                    HasSubstr("MOMENTUM, NESTEROV, RMSPROP")));
  EXPECT_THAT(ErrorOf(Config("optimizer { beta1: 0.5 }")),
              AllOf(StartsWith(where), HasSubstr("optimizer.beta1: contradicts type SGD"),
                    HasSubstr("ADAM, ADAMW")));
  EXPECT_THAT(ErrorOf(Config("optimizer { type: MOMENTUM rho: 0.5 }")), HasSubstr("RMSPROP"));
  const auto rate = [&](const std::string& settings) { return ErrorOf(Rate(settings)); };
  const std::string line = dir_ + "/c.txtpb:2: ";
  EXPECT_THAT(rate("factor: 0.1"),
              AllOf(StartsWith(line), HasSubstr("learning_rate.factor: contradicts type CONSTANT"),
                    HasSubstr("STEP, EXPONENTIAL")));
  EXPECT_THAT(rate("type: COSINE milestone_samples: [5, 6]"),
              AllOf(StartsWith(line), HasSubstr("milestone_samples"), HasSubstr("STEP")));
  EXPECT_THAT(rate("type: ONE_CYCLE warmup_samples: 5"),
              AllOf(StartsWith(line), HasSubstr("warmup_samples"), HasSubstr("ONE_CYCLE")));
  EXPECT_THAT(rate("type: COSINE power: 2"), HasSubstr("POLYNOMIAL"));
}

TEST_F(ConfigTest, ContradictionsOfTheUpdate) {
  const std::string where = dir_ + "/c.txtpb:2: ";
  const auto rate = [&](const std::string& settings) { return ErrorOf(Rate(settings)); };
  EXPECT_THAT(rate("type: STEP"), AllOf(StartsWith(where), HasSubstr("milestone_samples")));
  EXPECT_THAT(rate("type: STEP interval_samples: 5 milestone_samples: 5"),
              AllOf(StartsWith(where), HasSubstr("exactly one")));
  EXPECT_THAT(rate("type: EXPONENTIAL"), AllOf(StartsWith(where), HasSubstr("interval_samples")));
  EXPECT_THAT(rate("type: STEP milestone_samples: [5, 9, 9]"),
              AllOf(StartsWith(where), HasSubstr("milestone_samples[2]"), HasSubstr("got 9")));
  EXPECT_THAT(rate("type: STEP milestone_samples: [5, 9] warmup_samples: 5"),
              AllOf(HasSubstr("milestone_samples[0]"), HasSubstr("warmup_samples")));
  EXPECT_THAT(rate("type: COSINE warmup_samples: 100 total_samples: 100"),
              AllOf(StartsWith(where), HasSubstr("warmup_samples"), HasSubstr("less than")));
  EXPECT_EQ(rate("type: COSINE warmup_samples: 99 total_samples: 100"), "no error");
  EXPECT_THAT(ErrorOf(Config("evaluation { use_ema: true }")),
              AllOf(StartsWith(where), HasSubstr("evaluation.use_ema"), HasSubstr("ema_decay")));
  EXPECT_EQ(ErrorOf(Config("evaluation { use_ema: true } optimizer { ema_decay: 0.99 }")),
            "no error");
  EXPECT_THAT(ErrorOf(Config("optimizer { type: ADAMW decay_type: COUPLED }")),
              AllOf(StartsWith(where), HasSubstr("decay_type"), HasSubstr("expected type ADAM")));
}

// A type given on the command line takes the settings of the file's type with it, and no others.
TEST_F(ConfigTest, ATypeOnTheCommandLineDropsForeignSettings) {
  const std::string path =
      Rate("type: STEP factor: 0.5 milestone_samples: [5, 9] warmup_samples: 2");
  const auto load = [&](const std::vector<std::string>& texts) {
    std::vector<Setting> settings;
    for (const std::string& text : texts) settings.push_back(ParseSetting(text));
    return LoadConfig(path, settings).learning_rate();
  };
  EXPECT_EQ(load({"learning_rate.type=COSINE"}).milestone_samples_size(), 0);
  EXPECT_FALSE(load({"learning_rate.type=COSINE"}).has_factor());
  EXPECT_EQ(load({"learning_rate.type=COSINE"}).warmup_samples(), 2);
  EXPECT_EQ(load({"learning_rate.type=STEP"}).milestone_samples_size(), 2);
  // What was given on the command line itself is a contradiction.
  EXPECT_THAT(ErrorOf(path, {"learning_rate.type=COSINE", "learning_rate.factor=0.3"}),
              AllOf(StartsWith("--set learning_rate.factor=0.3"), HasSubstr("COSINE")));
  EXPECT_THAT(ErrorOf(path, {"learning_rate.type=COSINE", "learning_rate.milestone_samples=[7]"}),
              AllOf(StartsWith("--set learning_rate.milestone_samples=[7]"), HasSubstr("STEP")));
}

// What is written is what is used, and loads again to the same.
TEST_F(ConfigTest, EveryTypeIsWrittenAndLoadedAgain) {
  const auto written = [&](const std::string& path) {
    config::Config config = LoadConfig(path, {ParseSetting("data.dir=data")});
    ResolveConfig(config, 4);
    const std::string copy = dir_ + "/resolved.txtpb", second = dir_ + "/again.txtpb";
    WriteConfig(config, copy);
    config::Config again = LoadConfig(copy, {});
    ResolveConfig(again, 4);
    WriteConfig(again, second);
    std::ifstream a(copy), b(second);
    const std::string first_text((std::istreambuf_iterator<char>(a)), {});
    EXPECT_EQ(first_text, std::string((std::istreambuf_iterator<char>(b)), {}));
    return again;
  };
  const auto* optimizers = config::Optimizer::Type_descriptor();
  for (int i = 0; i < optimizers->value_count(); ++i) {
    const std::string type = optimizers->value(i)->name();
    const config::Optimizer optimizer =
        written(Config("optimizer { type: " + type + " weight_decay: 0.1 }")).optimizer();
    EXPECT_EQ(config::Optimizer::Type_Name(optimizer.type()), type);
    EXPECT_EQ(optimizer.decay_type(),
              type == "ADAMW" ? config::Optimizer::DECOUPLED : config::Optimizer::COUPLED);
    EXPECT_TRUE(optimizer.has_decay_type());
    const bool has_momentum = type == "MOMENTUM" || type == "NESTEROV" || type == "RMSPROP";
    EXPECT_EQ(optimizer.has_momentum(), has_momentum) << type;
    if (has_momentum) {
      EXPECT_EQ(optimizer.momentum(), type == "RMSPROP" ? 0.0f : 0.9f);
    }
    EXPECT_EQ(optimizer.has_beta2(), type == "ADAM" || type == "ADAMW") << type;
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
  EXPECT_THAT(names({"data.format=MNIST"}),
              ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
  EXPECT_THAT(ErrorOf(Config(""), {"data.class_names=[\"cat\", \"dog\"]"}),
              HasSubstr("expected 10 names, one for each class, got 2"));
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
