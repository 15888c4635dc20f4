// Settings that are there and change nothing: each row of the table, with and without its effect.
#include "common/config/without_effect.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/config/job_size.h"

namespace muster {
namespace {

config::Config Parse(const std::string& more) {
  config::Config config, given;
  config::Layer& layer = *config.mutable_model()->add_layer();
  layer.set_name("fc");
  layer.mutable_dense()->set_units(10);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &given)) << more;
  config.MergeFrom(given);
  if (config.run().length_case() == config::Run::LENGTH_NOT_SET)
    config.mutable_run()->set_steps(10);
  if (config.run().batch_case() == config::Run::BATCH_NOT_SET) {
    config.mutable_run()->set_global_batch(100);
  }
  if (!config.data().has_format()) config.mutable_data()->set_format(config::Data::CIFAR10);
  ResolveJobSize(config, 2);
  return config;
}

// The keys without effect.
std::vector<std::string> Keys(const std::string& config,
                              std::optional<int64_t> train_samples = {}) {
  std::vector<std::string> keys;
  for (const NoEffect& one : WithoutEffect(Parse(config), train_samples)) keys.push_back(one.key);
  return keys;
}

using List = std::vector<std::string>;

TEST(WithoutEffect, NothingIsSaidOfAPlainConfig) { EXPECT_EQ(Keys(""), List{}); }

struct Case {
  const char* key;
  const char* without;  // a config in which the setting has no effect
  const char* with;     // … and one in which it has
};

TEST(WithoutEffect, EveryRow) {
  constexpr const char* kSynthetic = "data { format: SYNTHETIC dir: \"x\" }";
  const Case cases[] = {
      {"run.global_batch",
       "run { global_batch: 101 } data { format: SYNTHETIC synthetic { train_samples: 100 } }",
       "run { global_batch: 100 } data { format: SYNTHETIC synthetic { train_samples: 100 } }"},
      {"run.slices", "run { slices: 9 global_batch: 8 }", "run { slices: 8 global_batch: 8 }"},
      {"cluster.max_restarts", "cluster { max_restarts: 3 on_lost_worker: CONTINUE }",
       "cluster { max_restarts: 3 }"},
      {"cluster.restart_window_s", "cluster { restart_window_s: 3 on_lost_worker: ABORT }",
       "cluster { restart_window_s: 3 }"},
      {"cluster.shares", "cluster { shares: MEASURED workers: 8 } run { slices: 8 }",
       "cluster { shares: MEASURED workers: 4 } run { slices: 8 }"},
      {"cluster.shares", "cluster { shares: MEASURED workers: 1 } run { slices: 8 }",
       "cluster { shares: MEASURED workers: 2 } run { slices: 8 }"},
      {"cluster.min_workers", "cluster { min_workers: 2 on_lost_worker: ABORT }",
       "cluster { min_workers: 2 on_lost_worker: CONTINUE }"},
      {"cluster.max_workers", "cluster { max_workers: 2 on_lost_worker: ABORT }",
       "cluster { max_workers: 2 }"},
      {"run.max_skipped_steps", "run { max_skipped_steps: 3 }",
       "run { max_skipped_steps: 3 on_nonfinite: SKIP_STEP }"},
      {"run.max_restarts", "run { max_restarts: 5 } checkpoint { keep_last: 0 }",
       "run { max_restarts: 5 }"},
      {"checkpoint.every_epochs", "checkpoint { every_epochs: 2 keep_last: 0 }",
       "checkpoint { every_epochs: 2 }"},
      {"checkpoint.every_steps", "checkpoint { every_steps: 2 keep_last: 0 }",
       "checkpoint { every_steps: 2 }"},
      {"checkpoint.every_minutes", "checkpoint { every_minutes: 2 keep_last: 0 }",
       "checkpoint { every_minutes: 2 }"},
      {"checkpoint.keep_best", "checkpoint { keep_best: 2 keep_last: 0 }",
       "checkpoint { keep_best: 2 }"},
      {"checkpoint.keep_best",
       "checkpoint { keep_best: 2 } evaluation { every_epochs: 0 skip_final: true }",
       "checkpoint { keep_best: 0 } evaluation { every_epochs: 0 skip_final: true }"},
      {"run.skip_mismatched", "run { skip_mismatched: true }",
       "run { skip_mismatched: true initial_weights: \"f\" }"},
      {"cluster.encryption", "cluster { encryption: CURVE transport: IPC }",
       "cluster { encryption: CURVE transport: TCP }"},
      {"run.trace_first_step", "run { trace_first_step: 3 }",
       "run { trace_first_step: 3 trace_file: \"t\" }"},
      {"run.trace_steps", "run { trace_steps: 3 }", "run { trace_steps: 3 trace_file: \"t\" }"},
      {"server.io_threads", "server { io_threads: 2 } cluster { transport: LOCAL }",
       "server { io_threads: 2 }"},
      {"worker.convolution", "worker { convolution: DIRECT }",
       "worker { convolution: DIRECT } model { layer { name: \"c\" conv2d { filters: 1 } } }"},
      {"worker.convolution",
       "worker { convolution: GEMM } model { layer { name: \"c\" conv2d { filters: 1 } } }",
       "worker { convolution: GEMM backend: CUDA } model { layer { name: \"c\" conv2d { filters: 1 "
       "} } }"},
      {"worker.precision", "worker { precision: BF16 }",
       "worker { precision: BF16 backend: CUDA }"},
      {"worker.soft_placement", "worker { soft_placement: false }",
       "worker { soft_placement: false devices: \"auto\" }"},
      {"worker.workers_per_gpu", "worker { workers_per_gpu: 2 devices: \"cpu\" }",
       "worker { workers_per_gpu: 2 devices: \"0,1\" }"},
      {"worker.gpu_memory_fraction", "worker { gpu_memory_fraction: 0.5 }",
       "worker { gpu_memory_fraction: 0.5 devices: \"auto:2\" }"},
      {"deadlines.progress_s",
       "deadlines { progress_s: 5 } evaluation { every_epochs: 0 skip_final: true }",
       "deadlines { progress_s: 5 } evaluation { every_epochs: 0 }"},
      {"data.dir", kSynthetic, "data { dir: \"x\" }"},
      {"data.preprocess.brightness", "data { preprocess { brightness: 9 standardize: true } }",
       "data { preprocess { brightness: 9 } }"},
      {"evaluation.batch", "evaluation { batch: 9 every_epochs: 0 skip_final: true }",
       "evaluation { batch: 9 }"},
      {"evaluation.confusion_matrix",
       "evaluation { confusion_matrix: true every_epochs: 0 skip_final: true }",
       "evaluation { confusion_matrix: true }"},
      {"tensorboard.histograms_every_steps",
       "tensorboard { histograms_every_steps: 9 enabled: false }",
       "tensorboard { histograms_every_steps: 9 }"},
      {"tensorboard.graph", "tensorboard { graph: true enabled: false }",
       "tensorboard { graph: true }"},
      {"tensorboard.hparams", "tensorboard { hparams: true enabled: false }",
       "tensorboard { hparams: true }"},
      {"tensorboard.config_text", "tensorboard { config_text: true enabled: false }",
       "tensorboard { config_text: true }"},
      {"tensorboard.images", "tensorboard { images: 3 enabled: false }",
       "tensorboard { images: 3 }"},
      {"evaluation.use_ema",
       "evaluation { use_ema: true every_epochs: 0 skip_final: true } optimizer { ema_decay: 0.9 }",
       "evaluation { use_ema: true } optimizer { ema_decay: 0.9 }"},
      {"evaluation.every_epochs", "evaluation { every_epochs: 3 } run { epochs: 2 }",
       "evaluation { every_epochs: 2 } run { epochs: 2 }"},
      {"evaluation.every_steps", "evaluation { every_steps: 11 }",
       "evaluation { every_steps: 10 }"},
      {"evaluation.stop_at_accuracy",
       "evaluation { stop_at_accuracy: 0.5 every_epochs: 0 every_steps: 10 }",
       "evaluation { stop_at_accuracy: 0.5 every_epochs: 0 every_steps: 5 }"},
      {"evaluation.min_delta", "evaluation { min_delta: 0.1 }",
       "evaluation { min_delta: 0.1 patience: 2 }"},
      {"optimizer.decay_norm_and_bias", "optimizer { decay_norm_and_bias: false }",
       "optimizer { decay_norm_and_bias: false weight_decay: 0.1 }"},
      {"optimizer.decay_type", "optimizer { decay_type: DECOUPLED }",
       "optimizer { decay_type: DECOUPLED weight_decay: 0.1 }"},
      {"learning_rate.base_workers", "learning_rate { base_workers: 2 }",
       "learning_rate { base_workers: 2 scaling: LINEAR }"},
      {"learning_rate.warmup_start", "learning_rate { warmup_start: 0.1 }",
       "learning_rate { warmup_start: 0.1 warmup_samples: 10 }"},
      // 10 steps of 100 images.
      {"learning_rate.warmup_samples", "learning_rate { type: COSINE warmup_samples: 1000 }",
       "learning_rate { type: COSINE warmup_samples: 999 }"},
      {"learning_rate.interval_samples", "learning_rate { type: STEP interval_samples: 1000 }",
       "learning_rate { type: STEP interval_samples: 999 }"},
      {"learning_rate.milestone_samples[1]",
       "learning_rate { type: STEP milestone_samples: [500, 1000] }",
       "learning_rate { type: STEP milestone_samples: [500, 999] }"},
      {"model.layer[1].dense.bias.initializer.value",
       "model { layer { dense { bias { initializer { type: HE value: 3 } } } } }",
       "model { layer { dense { bias { initializer { type: CONSTANT value: 3 } } } } }"},
      {"model.layer[1].conv2d.weights.initializer.stddev",
       "model { layer { conv2d { weights { initializer { type: HE stddev: 3 } } } } }",
       "model { layer { conv2d { weights { initializer { type: TRUNCATED_NORMAL stddev: 3 } } } } "
       "}"},
      {"model.layer[1].batch_norm.scale.weight_decay",
       "model { layer { batch_norm { scale { weight_decay: 1 learning_rate_multiplier: 0 } } } }",
       "model { layer { batch_norm { scale { weight_decay: 1 } } } }"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(Keys(one.without), List{one.key}) << one.without;
    EXPECT_EQ(Keys(one.with), List{}) << one.with;
  }
}

// The first evaluation is the best so far: a run with 4 before its end can wait for 3.
TEST(WithoutEffect, PatienceThatIsLongerThanTheRun) {
  const auto keys = [](const std::string& evaluation, const std::string& more = "",
                       std::optional<int64_t> samples = 1000) {
    return Keys("run { steps: 50 } evaluation { " + evaluation + " } " + more, samples);
  };
  const std::string every = "every_epochs: 0 every_steps: 10 ";
  EXPECT_EQ(keys(every + "patience: 3"), List{});
  EXPECT_EQ(keys(every + "patience: 4"), List{"evaluation.patience"});
  EXPECT_EQ(keys(every + "patience: 4", "", std::nullopt), List{}) << "data that are not known";
  const std::string plateau = "learning_rate { type: PLATEAU plateau_patience: ";
  EXPECT_EQ(keys(every, plateau + "3 }"), List{});
  EXPECT_EQ(keys(every, plateau + "4 }"), List{"learning_rate.type"});
  EXPECT_EQ(keys(every, plateau + "3 base: 0.5 end: 0.5 factor: 0.3 }"),
            List{"learning_rate.factor"});
  // Epochs of 10 steps, and every 15 steps: 10, 15, 20, 30, 40, 45.
  EXPECT_EQ(keys("every_epochs: 1 every_steps: 15 patience: 5"), List{});
  EXPECT_EQ(keys("every_epochs: 1 every_steps: 15 patience: 6"), List{"evaluation.patience"});
}

// The length of a run in images is known once the training set is.
TEST(WithoutEffect, WhatTheDataDecide) {
  const std::string config = "run { epochs: 2 } learning_rate { warmup_samples: 90000 }";
  EXPECT_EQ(Keys(config), List{});
  EXPECT_EQ(Keys(config, 50000), List{});
  EXPECT_EQ(Keys(config, 45000), List{"learning_rate.warmup_samples"});
  EXPECT_EQ(Keys(config + "data { format: SYNTHETIC synthetic { train_samples: 45000 } }"),
            List{"learning_rate.warmup_samples"});
  EXPECT_EQ(Keys("evaluation { every_epochs: 2 }", 1000), List{"evaluation.every_epochs"});
  EXPECT_EQ(Keys("evaluation { every_epochs: 2 }", 500), List{});
  EXPECT_EQ(Keys("evaluation { every_steps: 2 } data { format: SYNTHETIC synthetic { "
                 "train_samples: 1000 test_samples: 0 } }"),
            List{"evaluation.every_steps"});
}

TEST(WithoutEffect, CountsAreReadable) {
  const auto all =
      WithoutEffect(Parse("run { steps: 60 global_batch: 128 } learning_rate { "
                          "warmup_samples: 9000 }"));
  EXPECT_TRUE(all.at(0).reason.starts_with("the run has 7,680 images: ")) << all.at(0).reason;
}

// With skip_final, an evaluation that would come with the last step does not come.
TEST(WithoutEffect, EvaluationsThatNeverCome) {
  const std::string batch = "evaluation { batch: 9 skip_final: true ";
  EXPECT_EQ(Keys(batch + "every_epochs: 2 } run { epochs: 2 }"), List{"evaluation.batch"});
  EXPECT_EQ(Keys(batch + "every_epochs: 1 } run { epochs: 2 }"), List{});
  EXPECT_EQ(Keys(batch + "every_epochs: 0 every_steps: 10 }"), List{"evaluation.batch"});
  EXPECT_EQ(Keys(batch + "every_epochs: 0 every_steps: 9 }"), List{});
  // A run need not end with an epoch: 15 steps, of which 10 are the first one.
  const std::string stop = "evaluation { stop_at_accuracy: 0.5 every_epochs: 1 } ";
  EXPECT_EQ(Keys(stop + "run { steps: 15 }", 1000), List{});
  EXPECT_EQ(Keys(stop + "run { steps: 10 }", 1000), List{"evaluation.stop_at_accuracy"});
}

// A written config spells out defaults, and what resolving has filled in: nobody wished for those.
TEST(WithoutEffect, DefaultsAreNotWorthALine) {
  EXPECT_EQ(Keys("run { max_skipped_steps: 10 }"), List{});
  EXPECT_EQ(Keys("checkpoint { every_epochs: 1 keep_last: 0 }"), List{});
  EXPECT_EQ(Keys("optimizer { decay_type: COUPLED }"), List{});
  EXPECT_EQ(Keys("optimizer { type: ADAMW decay_type: DECOUPLED }"), List{});
}

}  // namespace
}  // namespace muster
