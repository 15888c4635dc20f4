// Settings without effect because of other settings, as described in config.proto.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/config/limits.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> Lines(const std::string& text) {
  config::Config config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return WithoutEffect(config);
}

struct Case {
  const char* key;
  const char* without;  // a config in which the setting has no effect
  const char* with;     // a config in which it has an effect
};

// A case for each form of a condition. Other settings differ only in their names.
TEST(WithoutEffect, ASettingWithoutWhatItNeeds) {
  for (const Case& one : {
           // One value of another setting, one of several values, or a value in another message.
           Case{"run.max_skipped_steps=3", "run { max_skipped_steps: 3 }",
                "run { max_skipped_steps: 3 on_nonfinite: SKIP_STEP }"},
           {"optimizer.beta1=0.5", "optimizer { type: MOMENTUM beta1: 0.5 }",
            "optimizer { type: ADAMW beta1: 0.5 }"},
           {"server.io_threads=2", "server { io_threads: 2 } cluster { transport: LOCAL }",
            "server { io_threads: 2 }"},
           {"data.preprocess.measure_mean_stddev=true",
            "data { format: NPZ preprocess { measure_mean_stddev: true mean: 1 } }",
            "data { format: NPZ preprocess { measure_mean_stddev: true } }"},
           // Any value except "", 0 or false.
           {"run.trace_steps=3", "run { trace_steps: 3 }",
            "run { trace_steps: 3 trace_file: \"t\" }"},
           {"checkpoint.every_minutes=2", "checkpoint { every_minutes: 2 keep_last: 0 }",
            "checkpoint { every_minutes: 2 }"},
           {"tensorboard.graph=true", "tensorboard { graph: true enabled: false }",
            "tensorboard { graph: true }"},
           // One of several settings.
           {"evaluation.confusion_matrix=true",
            "evaluation { confusion_matrix: true every_epochs: 0 skip_final: true }",
            "evaluation { confusion_matrix: true every_epochs: 0 }"},
           // Classes.
           {"data.class_weights=[...]",
            "data { format: NPZ npz { classes: 0 } class_weights: [2, 1] }",
            "data { format: NPZ npz { classes: 2 } class_weights: [2, 1] }"},
           // Two conditions.
           {"checkpoint.keep_best=2",
            "checkpoint { keep_best: 2 } evaluation { every_epochs: 0 skip_final: true }",
            "checkpoint { keep_best: 2 }"},
           {"learning_rate.warmup_start=0.5", "learning_rate { warmup_start: 0.5 }",
            "learning_rate { warmup_start: 0.5 warmup_samples: 7 }"},
           // Lists and messages.
           {"learning_rate.milestone_samples=[...]", "learning_rate { milestone_samples: 5 }",
            "learning_rate { milestone_samples: 5 type: STEP }"},
           {"data.synthetic={ ... }", "data { format: CIFAR10 synthetic { height: 9 } }",
            "data { format: SYNTHETIC synthetic { height: 9 } }"},
           // Another setting beside it, in a repeated message.
           {"model.layer[0].dense.weights.initializer.stddev=3",
            "model { layer { dense { weights { initializer { type: HE stddev: 3 } } } } }",
            "model { layer { dense { weights { initializer { type: TRUNCATED_NORMAL stddev: 3 } } "
            "} "
            "} }"},
       }) {
    EXPECT_THAT(Lines(one.without), ElementsAre(StartsWith(std::string(one.key) + ": needs ")));
    EXPECT_THAT(Lines(one.with), IsEmpty());
  }
}

// Written configs have explicit defaults.
TEST(WithoutEffect, DefaultsAreNotWorthALine) {
  EXPECT_THAT(Lines(""), IsEmpty());
  EXPECT_THAT(Lines("run { max_skipped_steps: 10 } checkpoint { keep_last: 0 }"), IsEmpty());
}

// A condition with an unknown setting would abort the program that evaluates it.
TEST(WithoutEffect, EveryNeedNamesSettings) {
  const config::Config config;
  const auto* const file = config::Config::descriptor()->file();
  for (int m = 0; m < file->message_type_count(); ++m) {
    const auto* const message =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(file->message_type(m));
    for (int f = 0; f < file->message_type(m)->field_count(); ++f) {
      (void)UnmetNeed(config, *message, *file->message_type(m)->field(f));
    }
  }
}

}  // namespace
}  // namespace muster
