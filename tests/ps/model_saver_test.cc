// If the best weights could not be written, they are written again before a checkpoint refers to
// them.
#include "ps/record/model_saver.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "common/checkpoint/list_checkpoints.h"
#include "common/model/model_metadata.h"
#include "common/tensors/safetensors_reader.h"
#include "ps/record/checkpoint_arenas.h"
#include "ps/record/write_checkpoint.h"
#include "tests/data/temp_dir.h"
#include "tests/model/small_graph.h"
#include "tests/protocol/scripted_clock.h"
#include "tests/ps/record/sent_events.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ModelSaverTest : public ::testing::Test {
 protected:
  // A file blocks the directory, so nothing can be written.
  ModelSaverTest() {
    std::ofstream(run_dir_) << "in the way";
    config_.mutable_run()->set_dir(run_dir_);
  }
  void ThereIsRoom() {
    std::filesystem::remove(run_dir_);
    std::filesystem::create_directory(run_dir_);
  }
  // Waits until everything submitted has been written.
  void Await() {
    std::promise<void> done;
    files_.Submit([&] { done.set_value(); });
    done.get_future().wait();
  }
  std::optional<int64_t> StepInFile() const {
    return StepOf(SafetensorsReader(run_dir_ + "/best.safetensors").header().metadata);
  }

  const TempDir dir_;
  const std::string run_dir_ = (dir_ / "run").string();
  config::Config config_;
  const Graph graph_ = SmallGraph(R"(layer { name: "fc" dense { units: 5 } })", {2, 2, 1});
  const Variables variables_{graph_.layout(), {}};
  const Progress progress_;
  const SentEvents sent_;
  const config::Config no_directory_;
  Recorder recorder_{no_directory_, graph_, sent_.fd()};
  ModelSaver saver_{config_, graph_, variables_, progress_, files_, recorder_};
  BackgroundThread files_;
};

TEST_F(ModelSaverTest, WhereThereIsRoomAgainTheyAreThereBeforeTheCheckpoint) {
  saver_.WriteBest(Counted(graph_), {.step = 3});
  Await();
  EXPECT_THAT(saver_.trouble(), HasSubstr("best.safetensors"));
  EXPECT_THAT(saver_.saved(), IsEmpty());
  ThereIsRoom();
  saver_.SubmitBest();
  std::optional<int64_t> before_checkpoint;
  files_.Submit([&] { before_checkpoint = StepInFile(); });
  Await();
  EXPECT_EQ(before_checkpoint, 3);
  EXPECT_EQ(saver_.trouble(), "");
  EXPECT_THAT(saver_.saved(), SizeIs(1));
}

TEST_F(ModelSaverTest, WhereThereIsNoneItIsSaidOnce) {
  saver_.WriteBest(Counted(graph_), {.step = 3});
  for (int i = 0; i < 2; ++i) saver_.SubmitBest();
  Await();
  recorder_.Record(SavingEvent(3));
  const std::vector<events::Event> said = sent_.Events();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_THAT(said[1].warning().message(), HasSubstr("retrying later"));
  ThereIsRoom();
  saver_.SubmitBest();
  Await();
  EXPECT_EQ(StepInFile(), 3);
  saver_.SubmitBest();  // nothing is missing
  Await();
  EXPECT_EQ(saver_.trouble(), "");
}

TEST_F(ModelSaverTest, TheyAreTriedAgainAfterAWhile) {
  saver_.WriteBest(Counted(graph_), {.step = 3});
  Await();
  ThereIsRoom();
  saver_.SubmitBestIfDue();
  Await();
  EXPECT_NE(saver_.trouble(), "");
  AdvanceRealTime(Retry::kInterval);
  saver_.SubmitBestIfDue();
  Await();
  EXPECT_EQ(StepInFile(), 3);
  EXPECT_EQ(saver_.trouble(), "");
}

TEST_F(ModelSaverTest, AtTheEndNobodyIsToldThatTheyAreTriedAgain) {
  std::promise<void> may_write;
  files_.Submit([&] { may_write.get_future().wait(); });
  saver_.WriteBest(Counted(graph_), {.step = 3});
  const std::future<void> saved = saver_.SaveLast(0);
  may_write.set_value();
  saved.wait();
  recorder_.Record(SavingEvent(3));
  EXPECT_THAT(sent_.Events(), SizeIs(1));
  EXPECT_THAT(saver_.trouble(), HasSubstr("best.safetensors"));
}

TEST_F(ModelSaverTest, OlderOnesNeverTakeTheirPlace) {
  saver_.WriteBest(Counted(graph_), {.step = 3});
  Await();
  ThereIsRoom();
  saver_.WriteBest(Counted(graph_), {.step = 5});
  saver_.WriteBest(Counted(graph_), {.step = 7});
  Await();
  EXPECT_EQ(StepInFile(), 7);
  ASSERT_THAT(saver_.saved(), SizeIs(1));
  EXPECT_EQ(saver_.saved().begin()->second.step(), 7);
}

// Two of three steps were not skipped. The file has their number as PyTorch's counter.
TEST_F(ModelSaverTest, FromACheckpointTheyKeepTheirNumberOfUpdates) {
  ThereIsRoom();
  const char* const layers =
      R"(layer { name: "norm" batch_norm {} } layer { name: "fc" dense { units: 5 } })";
  const Graph graph = SmallGraph(layers, {2, 2, 1});
  Variables variables(graph.layout(), {});
  const std::vector<std::string> names = CheckpointArenaNames(variables);
  const std::vector<std::span<float>> arenas = CheckpointArenas(variables, 0);
  TensorImage image(graph.layout(), names.size());
  for (const auto& job : image.CopyJobs({arenas.begin(), arenas.end()})) job();
  CheckpointToWrite what{.run_dir = run_dir_,
                         .name = {.generation = 1, .step = 3},
                         .tensors = CheckpointTensors(graph.layout(), names)};
  what.state.set_run_id(std::string(32, 'a'));
  what.state.set_generation(1);
  what.state.set_step(3);
  what.state.set_updates(2);
  what.state.mutable_progress()->mutable_last_evaluation()->set_step(3);
  what.state.mutable_progress()->set_best_step(3);
  WriteCheckpoint(what, image);
  ModelSaver saver(config_, graph, variables, progress_, files_, recorder_);
  saver.Restore({.checkpoint = ChooseCheckpoint(run_dir_)});
  Await();
  const SafetensorsReader file(run_dir_ + "/best.safetensors");
  const StoredTensor* const counter = file.header().Find("norm.num_batches_tracked");
  ASSERT_NE(counter, nullptr);
  int64_t updates = 0;
  file.ReadIntegers(*counter, {&updates, 1});
  EXPECT_EQ(updates, 2);
}

}  // namespace
}  // namespace muster::testing
