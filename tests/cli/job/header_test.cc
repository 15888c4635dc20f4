#include "cli/job/header.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "cli/job/summary.h"
#include "cli/text/text_table.h"
#include "cli/text/wrapped.h"
#include "common/base/version.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/base/paths.h"
#include "tests/data/temp_dir.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// A scaled initial learning rate is always shown.
TEST(LearningRateTextTest, SaysHowBaseIsScaled) {
  config::Config config;
  config.mutable_cluster()->set_workers(8);
  config.mutable_optimizer()->set_type(config::Optimizer::ADAM);
  config::LearningRate& rate = *config.mutable_learning_rate();
  rate.set_base(0.1);
  EXPECT_EQ(LearningRateText(config), "ADAM, CONSTANT 0.1");
  rate.set_type(config::LearningRate::COSINE);
  rate.set_scaling(config::LearningRate::LINEAR);
  rate.set_base_workers(2);
  EXPECT_EQ(LearningRateText(config),
            "ADAM, COSINE 0.4 = 0.1 (base) x 8/2 (LINEAR scaling of workers / base_workers)");
  rate.set_scaling(config::LearningRate::SQRT);
  EXPECT_EQ(LearningRateText(config),
            "ADAM, COSINE 0.2 = 0.1 (base) x sqrt(8/2) (SQRT scaling of workers / base_workers)");
}

TEST(UpdateTextTest, SaysWhatIsDoneWithGradientsAndWeights) {
  config::Config config;
  config::Optimizer& optimizer = *config.mutable_optimizer();
  optimizer.set_type(config::Optimizer::ADAMW);
  config.mutable_learning_rate()->set_base(0.1);
  EXPECT_EQ(UpdateText(config), "ADAMW, CONSTANT 0.1");
  config.mutable_learning_rate()->set_warmup_samples(5000);
  optimizer.set_weight_decay(0.01f);
  optimizer.set_clip_value(5);
  optimizer.set_clip_norm(2);
  optimizer.set_ema_decay(0.999);
  EXPECT_EQ(UpdateText(config),
            "ADAMW, CONSTANT 0.1, after a warm-up of 5,000 images, weight decay 0.01 (decoupled), "
            "gradients within +-5, gradient norm at most 2, moving average 0.999 of the weights");
  optimizer.set_type(config::Optimizer::SGD);
  EXPECT_THAT(UpdateText(config), HasSubstr("weight decay 0.01, "));
}

TEST(UpdateTextTest, SaysWhenAPlateauLowersTheRate) {
  config::Config config;
  config.mutable_learning_rate()->set_type(config::LearningRate::PLATEAU);
  config.mutable_learning_rate()->set_base(0.1);
  config.mutable_learning_rate()->set_plateau_patience(1);
  EXPECT_EQ(UpdateText(config),
            "SGD, PLATEAU 0.1, times 0.1 after 1 evaluation without a better accuracy");
}

// If the test set is used for selection, its accuracy is too optimistic.
TEST(JobTextTest, SaysWhatTheTestSetChooses) {
  const auto row = [](std::vector<Setting> settings) {
    for (const char* other : {"cluster.workers", "worker.threads"}) {
      settings.push_back({.path = other, .value = "1"});
    }
    config::Config config = LoadConfig(ConfigPath("smoke.txtpb"), settings);
    ResolveForMachine(config, 1);
    std::string text;
    for (const std::string& line :
         HeaderLines("", config, BuildGraph(config.model(), InputShape(config.data())), "", {})) {
      const bool goes_on = !text.empty() && line.starts_with("     ");
      if (line.starts_with("  test set") || goes_on) text += line;
      if (!text.empty() && !line.starts_with("  test set") && !goes_on) break;
    }
    return text;
  };
  EXPECT_EQ(row({{.path = "evaluation.every_epochs", .value = "0"}}), "");
  EXPECT_THAT(row({{.path = "evaluation.every_epochs", .value = "1"}}),
              AllOf(HasSubstr("best weights"), ::testing::Not(HasSubstr("PLATEAU"))));
  EXPECT_THAT(row({{.path = "evaluation.every_epochs", .value = "1"},
                   {.path = "evaluation.patience", .value = "3"},
                   {.path = "learning_rate.type", .value = "PLATEAU"}}),
              AllOf(HasSubstr("PLATEAU"), HasSubstr("patience")));
}

// Long rows are wrapped, except for paths.
TEST(HeaderTest, LinesFitATerminal) {
  const testing::TempDir parent;
  const RunDir dir = RunDir::Open(parent / "run");
  config::Config config;
  config.mutable_run()->set_batch_per_worker(30);
  config.mutable_run()->set_epochs(1);
  config.mutable_run()->set_slices(7);
  config.mutable_cluster()->set_workers(3);
  config.mutable_data()->set_format(config::Data::SYNTHETIC);
  config::LearningRate& rate = *config.mutable_learning_rate();
  rate.set_base(0.1);
  rate.set_type(config::LearningRate::COSINE);
  rate.set_scaling(config::LearningRate::SQRT);
  rate.set_warmup_samples(5000);
  config.mutable_optimizer()->set_clip_norm(1);
  config.mutable_optimizer()->set_ema_decay(0.5);
  config::Layer& layer = *config.mutable_model()->add_layer();
  layer.set_name("out");
  layer.mutable_dense()->set_units(10);
  config.mutable_model()->add_layer()->mutable_softmax_cross_entropy();
  config.mutable_model()->mutable_layer(1)->set_name("loss");
  const std::string path =
      "/a/path/that/is/much/longer/than/any/terminal/is/wide/and/stays/one/config.txtpb";
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  std::vector<std::string> lines = HeaderLines(
      path, config, graph, "runs/" + path,
      {.cores = 16,
       .memory = "a warning that is so long that it would not fit into one line of it",
       .resumed = "12 of 120 steps done, stopped early: no better test accuracy than 0.3"});
  EXPECT_THAT(lines, Not(Contains(HasSubstr("precision"))));
  config.mutable_worker()->set_precision(config::Worker::BF16);
  EXPECT_THAT(HeaderLines(path, config, graph, "runs/" + path, {}),
              Contains("  precision      BF16"));
  config.mutable_worker()->clear_precision();
  EXPECT_THAT(lines, Contains("  test set       also used to choose the best weights"));
  EXPECT_THAT(lines, Not(Contains(HasSubstr("frozen"))));
  HeaderOptions split;
  split.data = {.train = 45'000, .test = 10'000, .validation = 5'000};
  EXPECT_THAT(
      HeaderLines(path, config, graph, "runs/x", split),
      IsSupersetOf({"  validation     5,000 images to choose the best weights; 45,000 to train,",
                    "                 10,000 to test at the end"}));
  EXPECT_EQ(lines[0], std::string("muster ") + kVersion + ": " + path);
  EXPECT_THAT(lines, Contains("  run directory  runs/" + path));
  events::Summary summary;
  summary.set_steps(100);
  summary.set_stop_reason(
      "no better test accuracy than 0.6231 (step 800) in 3 evaluations: evaluation.patience is 3");
  summary.mutable_measured()->set_step_ms(1000);
  summary.mutable_measured()->set_timed_steps(1);
  summary.mutable_measured()->mutable_shares()->set_overhead(0.5);
  summary.mutable_measured()->mutable_shares()->set_imbalance(0.5);
  const std::vector<std::string> after = SummaryLines(summary, 3, {.dir = dir});
  EXPECT_THAT(after,
              IsSupersetOf({"  stopped early  no better test accuracy than 0.6231 (step 800) in 3",
                            "                 evaluations: evaluation.patience is 3"}));
  lines.insert(lines.end(), after.begin(), after.end());
  for (const std::string& line : lines) {
    EXPECT_TRUE(line.size() <= 80 || line.find(path) != std::string::npos) << line;
    EXPECT_EQ(line.find_last_not_of(' '), line.size() - 1) << "'" << line << "'";
  }
}

TEST(HeaderTest, SaysWhatIsFrozen) {
  config::Config config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      run { global_batch: 8 epochs: 1 slices: 1 }
      cluster { workers: 1 }
      data { format: SYNTHETIC }
      model {
        layer { name: "conv" conv2d { filters: 2 kernel: 1 } }
        layer { name: "bn" batch_norm {} }
        layer { name: "pool" global_avg_pool {} }
        layer { name: "out" dense { units: 10 } }
        layer { name: "loss" softmax_cross_entropy {} }
        freeze: ["conv", "bn"]
      })",
                                                            &config));
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  EXPECT_THAT(HeaderLines("x", config, graph, "runs/x", {}),
              Contains("  frozen         2 of 3 layers, with random weights; 30 parameters learn"));
  config.mutable_run()->set_initial_weights("w");
  EXPECT_THAT(HeaderLines("x", config, graph, "runs/x", {}),
              Contains("  frozen         2 of 3 layers; 30 parameters learn"));
}

TEST(WrappedRowTest, GoesOnBelowTheLastCell) {
  EXPECT_THAT(WrappedRow("  --wait N   Wait so long for it", 20),
              ElementsAre("  --wait N   Wait so", "             long", "             for it"));
  EXPECT_THAT(WrappedRow("    a sentence that is long", 14),
              ElementsAre("    a sentence", "    that is", "    long"));
  EXPECT_THAT(WrappedRow("it fits", 7), ElementsAre("it fits"));
  EXPECT_THAT(WrappedRow("  best  at step 2 (50.50 %)", 26),
              ElementsAre("  best  at step 2", "        (50.50 %)"));
  EXPECT_THAT(WrappedRow("", 7), ElementsAre(""));
  // Words longer than the line are not broken.
  EXPECT_THAT(WrappedRow("  dir  /a/long/path is it", 10),
              ElementsAre("  dir  /a/long/path", "       is", "       it"));
  EXPECT_EQ(WrappedRows("one two\n\n  three\n", 5), "one\ntwo\n\n  three\n");
}

TEST(TextTableTest, ColumnsLineUp) {
  TextTable table({{"name"}, {"count", true}});
  table.AddRow({"a", "1,000,000"});
  table.AddRule();
  table.AddRow({"long name", "2"});
  EXPECT_THAT(table.Lines(), ElementsAre("  name           count",  //
                                         "  ---------  ---------",  //
                                         "  a          1,000,000",  //
                                         "  ---------  ---------",  //
                                         "  long name          2"));
}

}  // namespace
}  // namespace muster
