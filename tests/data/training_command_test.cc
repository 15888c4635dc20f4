#include "cli/data/training_command.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include "common/base/text.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string CommandOf(std::vector<int64_t> images, bool has_val, const std::string& exclude = "") {
  PhotoReport report{.dir = "my photos", .needs_fraction = !has_val};
  report.sets.push_back({.name = "train", .images = std::move(images)});
  const std::vector<std::string> lines = TrainingCommand(report, exclude);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
  return Join(lines, "\n");
}

TEST(TrainingCommand, FitsTheNumberOfPhotos) {
  // 150 photos: the last layer, 9 steps of 16 in an epoch, 270 steps in all.
  EXPECT_THAT(CommandOf({50, 50, 50}, false),
              AllOf(HasSubstr("--data 'my photos'"), HasSubstr("--freeze 'conv*,bn*,layer*'"),
                    HasSubstr("--epochs 30"), HasSubstr("run.global_batch=16"),
                    HasSubstr("data.validation_fraction=0.2"), Not(HasSubstr("class_weights"))));
  // 350 photos of two classes: 10 steps of 32, 300 in all.
  EXPECT_THAT(CommandOf({175, 175}, true),
              AllOf(Not(HasSubstr("--freeze")), HasSubstr("--epochs 30"),
                    HasSubstr("run.global_batch=32"), Not(HasSubstr("validation_fraction"))));
  // Many photos: the config as it is.
  EXPECT_THAT(CommandOf({20000, 20000}, true),
              AllOf(Not(HasSubstr("--epochs")), Not(HasSubstr("--set"))));
}

TEST(TrainingCommand, WeighsRareClassesAndLeavesOutWhatIsListed) {
  EXPECT_THAT(CommandOf({1000, 3000}, true, "left out.txt"),
              AllOf(HasSubstr("--set 'data.class_weights=[2,0.667]'"),
                    HasSubstr("--set 'data.image_folder.exclude=left out.txt'")));
}

}  // namespace
}  // namespace muster
