// What is written to TensorBoard about a run, and when.
#include "ps/tensorboard/board.h"

#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <mutex>

#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "ps/tensorboard/sample_image.h"
#include "tests/base/paths.h"
#include "tests/data/temp_dir.h"
#include "tests/ps/tensorboard/event_reader.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BoardTest : public ::testing::Test {
 protected:
  static config::Config ConfigOf(const std::string& dir) {
    config::Config config =
        LoadConfig(ConfigPath("smoke.txtpb"),
                   {{.path = "run.dir", .value = dir}, {.path = "cluster.workers", .value = "2"}});
    ResolveConfig(config, 2);
    return config;
  }

  static wire::StepTimes Times(double compute_ms) {
    wire::StepTimes times;
    times.set_compute_ms(compute_ms);
    return times;
  }
  static events::Event Line(int64_t step) {
    events::Event event;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"(log {
             at { epoch: 1.5 }
             learning_rate: 0.125
             measured {
               train_loss: 1.5 step_ms: 8 images_per_second: 640 gpu_memory_mb: 1.5
               gpu_utilization: 0.5 gpu_temperature_c: 71 gpu_power_w: 412
               scalars { name: "top/5" value: 0.5 } scalars { name: "nan" }
             }
           })",
        &event));
    event.mutable_log()->mutable_at()->set_step(step);
    return event;
  }
  static events::Event Evaluation(int64_t step, double accuracy) {
    events::Event event;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"(evaluation {
             measured { train_loss: 1.5 scalars { name: "top/5" value: 7 } }
             test { loss: 2 scalars { name: "top/5" value: 0.25 } scalars { name: "top 5" value: 0.5 } }
           })",
        &event));
    event.mutable_evaluation()->mutable_at()->set_step(step);
    event.mutable_evaluation()->mutable_test()->set_accuracy(accuracy);
    return event;
  }
  // Joins the thread before the board is destroyed.
  struct RunningBoard {
    RunningBoard(const config::Config& config, const Graph& graph, const EventFile::Warn& warn)
        : board(config, graph, thread, warn) {}
    Board board;
    BackgroundThread thread;
  };
  // A run of one interval and one evaluation.
  std::vector<tensorboard::Event> Run() {
    {
      RunningBoard running(config_, graph_, warn_);
      Board& board = running.board;
      EXPECT_EQ(board.Wants(10), Observe::kNothing);  // there is no file yet
      board.Begin(0);
      board.AddTimes(0, Times(2));
      board.AddTimes(0, Times(4));
      board.AddTimes(1, Times(8));
      wants_ = {board.Wants(9), board.Wants(10), board.Wants(20)};
      board.Observed(10, {.gradient_norm = 3, .weight_norm = 5});
      board.Log(Line(10));
      board.AddTimes(1, Times(16));
      board.Log(Line(20));
      board.Evaluation(Evaluation(20, 0.75), {});
      events::Summary summary;
      summary.mutable_at()->set_step(20);
      summary.set_end(events::Summary::COMPLETED);
      board.End(summary);
    }
    return fs::is_empty(dir_) ? std::vector<tensorboard::Event>() : ReadEvents(dir_);
  }

  const TempDir temp_;
  const std::string dir_ = temp_.string();
  config::Config config_ = ConfigOf(dir_);
  const Graph graph_ = BuildGraph(config_.model(), InputShape(config_.data()));
  std::vector<Observe> wants_;
  std::vector<std::string> said_;
  const EventFile::Warn warn_ = [this](const std::string& message) { said_.push_back(message); };
};

TEST_F(BoardTest, ScalarsOfIntervalsAndEvaluations) {
  const std::vector<tensorboard::Event> events = Run();
  const auto scalar = [&](const std::string& tag, size_t which = 0) {
    const std::vector<TaggedValue> values = ValuesOf(events, tag);
    return which < values.size() ? values[which].value.simple_value() : -1.0F;
  };
  EXPECT_EQ(scalar("loss/train"), 1.5F);
  EXPECT_EQ(scalar("run/learning_rate"), 0.125F);
  EXPECT_EQ(scalar("run/images_per_second"), 640);
  EXPECT_EQ(scalar("run/gpu_memory_mb"), 1.5F);
  EXPECT_EQ(scalar("run/gpu_utilization"), 0.5F);
  EXPECT_EQ(scalar("run/gpu_temperature_c"), 71);
  EXPECT_EQ(scalar("run/gpu_power_w"), 412);
  EXPECT_EQ(scalar("norm/gradient"), 3);
  EXPECT_EQ(scalar("norm/weights"), 5);
  EXPECT_EQ(scalar("accuracy/test"), 0.75F);
  EXPECT_EQ(scalar("train/top/5"), 0.5F);
  EXPECT_EQ(ValuesOf(events, "train/top/5").size(), 2u) << "one of each interval";
  EXPECT_EQ(scalar("test/top/5"), 0.25F);
  EXPECT_EQ(scalar("accuracy/test_top5"), 0.5F);
  EXPECT_EQ(ValuesOf(events, "train/nan").size(), 0u);
  EXPECT_EQ(ValuesOf(events, "accuracy/test")[0].step, 20);
  // The mean of each rank's reports since the last line. Ranks without reports are left out.
  EXPECT_EQ(scalar("compute_ms/rank_0"), 3);
  EXPECT_EQ(ValuesOf(events, "compute_ms/rank_0").size(), 1u);
  EXPECT_EQ(scalar("compute_ms/rank_1", 0), 8);
  EXPECT_EQ(scalar("compute_ms/rank_1", 1), 16);
  EXPECT_THAT(wants_, ElementsAre(Observe::kNothing, Observe::kNorms, Observe::kNorms));
}

// The checkpoint of step 20 was written before its evaluation, so the resumed run repeats it.
TEST_F(BoardTest, AnEvaluationThatIsThereIsNotShownAgain) {
  ASSERT_FALSE(Run().empty());
  for (const auto& entry : fs::directory_iterator(dir_)) {  // of an earlier process
    fs::rename(entry.path(), dir_ + "/events.out.tfevents.0000000001.before.1.muster");
    break;
  }
  {
    RunningBoard running(config_, graph_, warn_);
    Board& board = running.board;
    board.Begin(20);
    for (const int64_t step : {20, 40}) board.Evaluation(Evaluation(step, 0.5), {});
  }
  fs::rename(dir_ + "/events.out.tfevents.0000000001.before.1.muster", dir_ + ".before");
  const std::vector<TaggedValue> again = ValuesOf(ReadEvents(dir_), "accuracy/test");
  fs::remove(dir_ + ".before");
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].step, 40);
}

// An earlier server's disk was full at its end. run.events has been completed since.
TEST_F(BoardTest, WhatTheLogKnowsOfTheEndIsWrittenAgain) {
  ASSERT_FALSE(Run().empty());  // an interval of steps 10 and 20, an evaluation of step 20
  fs::rename(fs::directory_iterator(dir_)->path(),
             dir_ + "/events.out.tfevents.0000000001.before.1.muster");
  {
    RunningBoard running(config_, graph_, warn_);
    Board& board = running.board;
    board.Begin(40);
    std::vector<events::Event> lacking;
    for (const int step : {10, 20, 30, 40, 50}) {
      for (events::Event event : {Line(step), Evaluation(step, 0.5), events::Event()}) {
        event.set_unix_ms(1769860806250);
        if (board.Lacks(event)) lacking.push_back(event);
      }
    }
    board.WriteAgain(lacking);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("lacked steps 30 to 40")));
  }
  fs::rename(dir_ + "/events.out.tfevents.0000000001.before.1.muster", dir_ + ".before");
  const std::vector<tensorboard::Event> events = ReadEvents(dir_);
  fs::remove(dir_ + ".before");
  for (const char* tag : {"run/learning_rate", "accuracy/test"}) {
    const std::vector<TaggedValue> values = ValuesOf(events, tag);
    ASSERT_EQ(values.size(), 2u) << tag;
    EXPECT_EQ(values[0].step, 30) << tag;
    EXPECT_EQ(values[1].step, 40) << tag;
  }
  EXPECT_EQ(events.back().wall_time(), 1769860806.25);
}

TEST_F(BoardTest, NothingMoreThanAskedFor) {
  for (const tensorboard::Event& event : Run()) {
    EXPECT_TRUE(event.graph_def().empty());
    for (const auto& value : event.summary().value()) {
      EXPECT_EQ(value.has_metadata(), value.tag() == "custom_scalars__config__") << value.tag();
    }
  }
}

TEST_F(BoardTest, GraphHparamsAndConfigOnRequest) {
  config::Tensorboard& wanted = *config_.mutable_tensorboard();
  wanted.set_graph(true);
  wanted.set_hparams(true);
  wanted.set_config_text(true);
  wanted.set_histograms_every_steps(20);
  const std::vector<tensorboard::Event> events = Run();
  EXPECT_EQ(wants_[2], Observe::kHistograms);

  const auto with_graph = std::ranges::find_if(
      events, [](const tensorboard::Event& event) { return !event.graph_def().empty(); });
  ASSERT_NE(with_graph, events.end());
  tensorboard::GraphDef graph;
  ASSERT_TRUE(graph.ParseFromString(with_graph->graph_def()));
  EXPECT_EQ(graph.node(0).name(), "data");
  EXPECT_EQ(graph.node(1).name(), "conv1");
  EXPECT_EQ(graph.node(1).op(), "conv2d");
  EXPECT_THAT(graph.node(1).input(), Contains("conv1/weights"));

  const auto config = ValuesOf(events, "config");
  ASSERT_EQ(config.size(), 1u);
  EXPECT_EQ(config[0].value.metadata().plugin_data().plugin_name(), "text");
  EXPECT_THAT(config[0].value.tensor().string_val(0), HasSubstr("    optimizer {"));

  const auto start = ValuesOf(events, "_hparams_/session_start_info");
  ASSERT_EQ(start.size(), 1u);
  tensorboard::HparamsPluginData hparams;
  ASSERT_TRUE(hparams.ParseFromString(start[0].value.metadata().plugin_data().content()));
  const auto& values = hparams.session_start_info().hparams();
  EXPECT_EQ(values.at("learning_rate.base").number_value(), 0.05);
  EXPECT_EQ(values.at("optimizer.type").string_value(), "MOMENTUM");
  EXPECT_EQ(values.at("run.slices").number_value(), 8);
  EXPECT_FALSE(values.contains("cluster.workers"));  // run/workers has the final number
  const auto end = ValuesOf(events, "_hparams_/session_end_info");
  ASSERT_EQ(end.size(), 1u);
  ASSERT_TRUE(hparams.ParseFromString(end[0].value.metadata().plugin_data().content()));
  EXPECT_EQ(hparams.session_end_info().status(), tensorboard::SessionEnd::STATUS_SUCCESS);
}

TEST_F(BoardTest, ARunThatGoesOnHasOneGraphAndItsLastNumberOfWorkers) {
  config_.mutable_tensorboard()->set_graph(true);
  config_.mutable_tensorboard()->set_hparams(true);
  ASSERT_FALSE(Run().empty());
  config_.mutable_cluster()->set_workers(4);
  {
    RunningBoard running(config_, graph_, warn_);
    Board& board = running.board;
    board.Begin(20);
  }
  int64_t graphs = 0;
  std::vector<double> workers;
  for (const auto& entry : fs::directory_iterator(dir_)) {
    const std::string only = dir_ + ".only";
    fs::create_directory(only);
    fs::copy(entry.path(), only);
    const std::vector<tensorboard::Event> events = ReadEvents(only);
    graphs += std::ranges::count_if(
        events, [](const tensorboard::Event& event) { return !event.graph_def().empty(); });
    for (const TaggedValue& one : ValuesOf(events, "run/workers")) {
      workers.push_back(one.value.simple_value());
    }
    fs::remove_all(only);
  }
  EXPECT_EQ(graphs, 1);
  EXPECT_THAT(workers, ::testing::UnorderedElementsAre(2, 4));
}

TEST_F(BoardTest, OneChartOfAllRanksForEachPartOfAStep) {
  const std::vector<TaggedValue> layouts = ValuesOf(Run(), "custom_scalars__config__");
  ASSERT_EQ(layouts.size(), 1u);
  EXPECT_EQ(layouts[0].value.metadata().plugin_data().plugin_name(), "custom_scalars");
  tensorboard::Layout layout;
  ASSERT_TRUE(layout.ParseFromString(layouts[0].value.tensor().string_val(0)));
  ASSERT_EQ(layout.category_size(), 1);
  ASSERT_EQ(layout.category(0).chart_size(), 5);
  EXPECT_EQ(layout.category(0).chart(0).multiline().tag(0), "^compute_ms/rank_");
}

// While the disk is too slow, all scalars are queued, but only a few megabytes of images.
TEST_F(BoardTest, ADiskThatIsTooSlowLosesPicturesAndSaysSo) {
  constexpr int kMany = 5000;
  std::mutex slow;
  std::promise<std::string> missing;
  {
    RunningBoard running(config_, graph_, warn_);
    running.board.Begin(0);
    slow.lock();
    running.thread.Submit([&] { const std::scoped_lock wait(slow); });
    for (int i = 1; i <= kMany; ++i) running.board.Log(Line(i));
    EXPECT_THAT(said_, ::testing::IsEmpty());
    Observation large;
    large.variables.resize(1);
    large.variables[0].name = std::string(15 << 20, 'x');  // in two tags
    for (int i = 1; i <= 3; ++i) running.board.Observed(kMany + i, large);
    slow.unlock();
    running.thread.Submit([&] { missing.set_value(running.board.file()->Missing()); });
  }
  EXPECT_THAT(said_, ElementsAre(HasSubstr("the disk is too slow")));
  EXPECT_THAT(missing.get_future().get(), HasSubstr("missing: 1 event of step 5003"));
  EXPECT_EQ(ValuesOf(ReadEvents(dir_), "loss/train").size(), size_t{kMany});
}

TEST_F(BoardTest, NoFileWhereNoneIsWanted) {
  config_.mutable_tensorboard()->set_enabled(false);
  EXPECT_TRUE(Run().empty());
  EXPECT_EQ(wants_[1], Observe::kNothing);
}

// 1517737427 x 4051369217 x 3 is 202361 modulo 2^64.
TEST(AddImage, SizesThatOverflowAreDropped) {
  tensorboard::Summary summary;
  AddImage(summary, "test",
           {.index = 0,
            .height = 1517737427,
            .width = 4051369217,
            .channels = 3,
            .pixels = std::string(202361, 'x'),
            .label = 0,
            .predicted = 0},
           {});
  EXPECT_EQ(summary.value_size(), 0);
}

}  // namespace
}  // namespace muster::testing
