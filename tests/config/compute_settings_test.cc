// Settings that server and workers must share, and the error about a difference.
#include "common/config/compute_settings.h"

#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

config::Config Parse(const std::string& more = "") {
  config::Config config;
  MUSTER_CHECK(google::protobuf::TextFormat::ParseFromString(
      R"(
        run { seed: 7 epochs: 1 }
        data { format: CIFAR10 dir: "/here" preprocess { crop_height: 24 crop_width: 24 flip: true } }
        model {
          layer { name: "conv" conv2d { filters: 8 kernel: 3 weights { weight_decay: 0.1 } } }
          layer { name: "norm" lrn { alpha: 0.25 } }
          layer { name: "drop" dropout { rate: 0.5 } }
          layer { name: "loss" softmax_cross_entropy {} }
        }
      )" + more,
      &config));
  return config;
}

TEST(ComputeSettings, AreWhatAWorkerComputesWith) {
  EXPECT_THAT(ComputeSettings(Parse()),
              ::testing::ElementsAre("data.format: CIFAR10", "data.preprocess.crop_height: 24",
                                     "data.preprocess.crop_width: 24", "data.preprocess.flip: true",
                                     "model.layer[drop].dropout.rate: 0.5",
                                     "model.layer[norm].lrn.alpha: 0.25", "run.seed: 7"));
}

TEST(ComputeSettings, LeaveOutWhatIsTheServersOrThisHosts) {
  config::Config other = Parse(R"(
      optimizer { type: ADAM } learning_rate { base: 3 } cluster { workers: 9 } )");
  other.mutable_data()->set_dir("/there");
  other.mutable_data()->set_prefetch_threads(7);
  other.mutable_worker()->set_threads(3);
  other.mutable_run()->set_epochs(99);
  other.mutable_model()->mutable_layer(0)->mutable_conv2d()->mutable_weights()->set_weight_decay(1);
  EXPECT_EQ(FirstDifference(ComputeSettings(Parse()), ComputeSettings(other)), std::nullopt);
}

// A default that is written explicitly, as in a run directory's config.txtpb, is no difference.
TEST(ComputeSettings, ADefaultIsTheSameWrittenOrNot) {
  config::Config other = Parse();
  other.mutable_data()->mutable_preprocess()->set_brightness(0);
  other.mutable_data()->mutable_preprocess()->set_contrast_max(1);
  other.mutable_model()->mutable_layer(1)->mutable_lrn()->set_beta(0.5f);
  EXPECT_EQ(ComputeSettings(other), ComputeSettings(Parse()));
  // Settings for synthetic data only count for synthetic data.
  other.mutable_data()->mutable_synthetic()->set_classes(3);
  EXPECT_EQ(ComputeSettings(other), ComputeSettings(Parse()));
  other.mutable_data()->set_format(config::Data::SYNTHETIC);
  EXPECT_THAT(ComputeSettings(other), ::testing::Contains("data.synthetic.classes: 3"));
}

TEST(ComputeSettings, TheFirstDifferenceIsNamed) {
  const auto difference = [](const std::function<void(config::Config&)>& change) {
    config::Config other = Parse();
    change(other);
    return FirstDifference(ComputeSettings(Parse()), ComputeSettings(other)).value_or("none");
  };
  EXPECT_EQ(difference([](config::Config& c) { c.mutable_run()->set_seed(8); }),
            "run.seed is 7 on the server and 8 on the worker");
  EXPECT_EQ(difference([](config::Config& c) {
              c.mutable_worker()->set_convolution(config::Worker::DIRECT);
            }),
            "worker.convolution is at its default on the server and DIRECT on the worker");
  EXPECT_THAT(
      difference([](config::Config& c) { c.mutable_data()->mutable_preprocess()->clear_flip(); }),
      AllOf(HasSubstr("data.preprocess.flip is true on"), HasSubstr("default on the worker")));
  EXPECT_THAT(
      difference(
          [](config::Config& c) { c.mutable_data()->mutable_preprocess()->set_standardize(true); }),
      AllOf(HasSubstr("standardize is at its default on"), HasSubstr("true on the worker")));
  EXPECT_EQ(
      difference([](config::Config& c) { c.mutable_data()->mutable_class_weights()->Add(0.5); }),
      "data.class_weights[0] is at its default on the server and 0.5 on the worker");
  EXPECT_EQ(difference([](config::Config& c) { c.mutable_evaluation()->set_flip(true); }),
            "evaluation.flip is at its default on the server and true on the worker");
  EXPECT_EQ(difference([](config::Config& c) { c.mutable_evaluation()->set_flip(false); }), "none");
  EXPECT_THAT(difference([](config::Config& c) {
                c.mutable_model()->mutable_layer(2)->mutable_dropout()->set_rate(0.25f);
              }),
              HasSubstr("model.layer[drop].dropout.rate is 0.5 on the server and 0.25"));
  EXPECT_THAT(
      difference([](config::Config& c) {
        c.mutable_model()->mutable_layer(3)->mutable_softmax_cross_entropy()->set_label_smoothing(
            0.5f);
      }),
      HasSubstr("label_smoothing"));
  // Text from other processes may be malformed.
  EXPECT_NE(FirstDifference(ComputeSettings(Parse()), {"nonsense", ""}), std::nullopt);
  EXPECT_NE(FirstDifference({}, {"nonsense"}), std::nullopt);
}

}  // namespace
}  // namespace muster
