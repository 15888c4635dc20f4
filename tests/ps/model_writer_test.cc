// Best weights that the disk did not take are tried again before a checkpoint tells of them.
#include "ps/model_writer.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "common/model/model_metadata.h"
#include "common/tensors/safetensors_reader.h"
#include "tests/data/temp_dir.h"
#include "tests/model/small_graph.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelWriterTest : public ::testing::Test {
 protected:
  // A file is where the directory is to be: nothing can be written.
  ModelWriterTest() {
    std::ofstream(run_dir_) << "in the way";
    config_.mutable_run()->set_dir(run_dir_);
  }
  void ThereIsRoom() {
    std::filesystem::remove(run_dir_);
    std::filesystem::create_directory(run_dir_);
  }
  void WriteBest(int64_t step) {
    writer_.WriteBest(Counted(graph_), {.step = step});
    ASSERT_TRUE(writer_.Await(std::chrono::seconds(30)));
  }
  std::optional<int64_t> StepInFile() const {
    return StepOf(SafetensorsReader(run_dir_ + "/best.safetensors").header().metadata);
  }

  const TempDir dir_;
  const std::string run_dir_ = (dir_ / "run").string();
  config::Config config_;
  const Graph graph_ = SmallGraph(R"(layer { name: "fc" dense { units: 5 } })", {2, 2, 1});
  ModelWriter writer_{config_, graph_};
};

TEST_F(ModelWriterTest, WhereThereIsRoomAgainTheyAreThereBeforeTheCheckpoint) {
  WriteBest(3);
  EXPECT_THAT(writer_.TakeFailures(), ElementsAre(HasSubstr("best.safetensors")));
  EXPECT_THAT(writer_.saved(), IsEmpty());
  ThereIsRoom();
  writer_.AwaitBest(3);
  EXPECT_EQ(StepInFile(), 3);
}

TEST_F(ModelWriterTest, WhereThereIsNoneTheCheckpointIsNotHeldUpAndNothingIsSaidTwice) {
  WriteBest(3);
  EXPECT_THAT(writer_.TakeFailures(), ElementsAre(HasSubstr("best.safetensors")));
  writer_.AwaitBest(3);
  EXPECT_THAT(writer_.TakeFailures(), IsEmpty());
  ThereIsRoom();
  writer_.AwaitBest(3);
  EXPECT_EQ(StepInFile(), 3);
}

TEST_F(ModelWriterTest, OlderOnesNeverTakeTheirPlace) {
  WriteBest(3);
  ThereIsRoom();
  WriteBest(5);
  writer_.AwaitBest(5);
  EXPECT_EQ(StepInFile(), 5);
}

}  // namespace
}  // namespace muster::testing
