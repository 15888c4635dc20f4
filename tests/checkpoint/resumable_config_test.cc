// The settings that may change when a run is resumed.
#include "common/checkpoint/resumable_config.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/config/config.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

config::Config Resolved(const std::string& more = "") {
  config::Config config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "run { epochs: 2 global_batch: 64 slices: 4 } cluster { workers: 2 }"
      "data { format: SYNTHETIC } learning_rate { base: 0.1 }"
      "model { layer { name: 'out' dense { units: 10 } }"
      "        layer { name: 'loss' softmax_cross_entropy {} } }",
      &config));
  config::Config changes;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &changes)) << more;
  if (changes.run().has_batch_per_worker()) config.mutable_run()->clear_global_batch();
  config.MergeFrom(changes);
  ResolveForMachine(config, 4);
  return config;
}

std::string ErrorOf(const std::string& change, const std::string& before = "") {
  try {
    (void)CheckResumable(FrozenConfigText(Resolved(before)), Resolved(before + change));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(ResumableConfigTest, WhereAndHowFastMayChange) {
  for (const char* change :
       {"", "run { drop_last: false }",
        "cluster { workers: 4 transport: TCP chunk_bytes: 4096 shares: MEASURED }",
        "cluster { encryption: CURVE }", "server { threads: 3 }", "run { dir: 'elsewhere' }",
        "run { epochs: 9 }", "run { steps: 90 }", "data { dir: 'moved' prefetch_threads: 2 }",
        "deadlines { step_s: 5 }", "run { max_restarts: 7 }",
        "worker { check_gradients: true cuda_graphs: false gpu_sums: true }",
        "checkpoint { every_steps: 3 keep_last: 9 }", "run { trace_file: 't.json' }",
        "evaluation { patience: 5 stop_at_accuracy: 0.9 }",
        "tensorboard { histograms_every_steps: 5 }", "worker { devices: 'cpu' }"}) {
    EXPECT_EQ(ErrorOf(change), "") << change;
  }
}

TEST(ResumableConfigTest, WhatAStepDoesMayNot) {
  EXPECT_THAT(ErrorOf("learning_rate { base: 0.2 }"),
              HasSubstr("learning_rate.base was 0.1 and is now 0.2"));
  EXPECT_THAT(ErrorOf("run { slices: 8 }"), HasSubstr("run.slices was 4 and is now 8"));
  EXPECT_THAT(ErrorOf("run { drop_last: true }"), HasSubstr("run.drop_last was false"));
  EXPECT_THAT(ErrorOf("run { seed: 5 }"), HasSubstr("run.seed"));
  EXPECT_THAT(ErrorOf("run { global_batch: 32 }"), HasSubstr("run.global_batch"));
  EXPECT_THAT(ErrorOf("optimizer { ema_decay: 0.9 }"),
              HasSubstr("optimizer.ema_decay was not set"));
  EXPECT_THAT(ErrorOf("cluster { wire_dtype: BF16 }"), HasSubstr("cluster.wire_dtype"));
  EXPECT_THAT(ErrorOf("evaluation { min_delta: 0.1 }"), HasSubstr("evaluation.min_delta"));
  const std::string plateau = FrozenConfigText(Resolved("learning_rate { type: PLATEAU }"));
  EXPECT_THAT(
      [&] {
        (void)CheckResumable(plateau,
                             Resolved("learning_rate { type: PLATEAU plateau_patience: 3 }"));
      },
      ThrowsMessage<Error>(HasSubstr("learning_rate.plateau_patience was 5 and is now 3")));
  EXPECT_THAT(ErrorOf("evaluation { every_steps: 3 }"), HasSubstr("evaluation.every_steps"));
  EXPECT_THAT(ErrorOf("model { layer { name: 'x' relu {} } }"), HasSubstr("model.layer[2]"));
}

// Other versions write other defaults explicitly.
TEST(ResumableConfigTest, ADefaultIsTheSameWrittenOrNot) {
  config::Config kept = FrozenConfig(Resolved());
  kept.mutable_run()->clear_seed();
  kept.mutable_optimizer()->set_beta1(0.9);
  EXPECT_THAT(CheckResumable(kept.DebugString(), Resolved()), IsEmpty());
}

TEST(ResumableConfigTest, WhatOnlyRoundsDifferentlyIsNamed) {
  EXPECT_THAT(CheckResumable(FrozenConfigText(Resolved()), Resolved("worker { threads: 2 }")),
              ElementsAre("worker.threads was 1 and is now 2"));
  EXPECT_THAT(CheckResumable(FrozenConfigText(Resolved()), Resolved()), IsEmpty());
}

TEST(ResumableConfigTest, TheLengthStaysWhereTheRateFollowsIt) {
  for (const char* type : {"POLYNOMIAL", "COSINE", "ONE_CYCLE"}) {
    const std::string rate = std::string("learning_rate { type: ") + type + " } ";
    const std::string ends = std::string("learning_rate { total_samples: 7 type: ") + type + " } ";
    EXPECT_THAT(ErrorOf("run { epochs: 9 }", rate), HasSubstr(type));
    EXPECT_EQ(ErrorOf("run { epochs: 9 }", ends), "");
    EXPECT_EQ(ErrorOf("cluster { workers: 4 }", rate), "");
  }
  EXPECT_EQ(ErrorOf("run { epochs: 9 }", "learning_rate { type: PLATEAU }"), "");
}

// Values derived from the number of workers are frozen, so four workers continue like two.
TEST(ResumableConfigTest, BatchAndRateNoLongerFollowTheWorkers) {
  const config::Config two =
      Resolved("run { batch_per_worker: 32 } learning_rate { scaling: LINEAR base_workers: 1 }");
  const config::Config frozen = FrozenConfig(two);
  EXPECT_EQ(frozen.run().global_batch(), 64);
  EXPECT_EQ(frozen.learning_rate().base(), 0.2);
  config::Config four = frozen;
  four.mutable_cluster()->set_workers(4);
  EXPECT_THAT(CheckResumable(FrozenConfigText(two), four), IsEmpty());
  EXPECT_EQ(FrozenConfigText(frozen), FrozenConfigText(two));
}

}  // namespace
}  // namespace muster
