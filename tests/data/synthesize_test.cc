// The procedural data set: layout, determinism, and existing files.
#include "cli/data/synthesize.h"

#include <gtest/gtest.h>

#include <array>

#include "cli/data/data_folder.h"
#include "tests/data/expect_error.h"
#include "tests/data/test_sets.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ReadBytes;
using testing::TempDir;
using testing::WriteBytes;
using testing::WriteCifar10;

// A small set.
void Make(const TempDir& dir, uint64_t seed = 7, int64_t train = 20, int64_t test = 30) {
  SynthesizeCifar10(dir.string(), seed, train, test);
}

TEST(Synthesize, HasTheLayoutOfCifar10) {
  const TempDir dir;
  Make(dir);
  const Datasets sets = OpenCifar10(dir.string());
  EXPECT_EQ(sets.train->size(), 100);
  EXPECT_EQ(sets.test->size(), 30);
  for (const char* name : kCifar10TrainFiles) {
    EXPECT_EQ(fs::file_size(dir / kCifar10Folder / name), 20u * 3073);
  }
  EXPECT_THAT(ReadBytes(dir / kCifar10Folder / "batches.meta.txt"),
              AllOf(HasSubstr("disk\n"), HasSubstr("checkerboard\n"), HasSubstr("dots\n")));
  EXPECT_FALSE(fs::exists(dir / ".cifar-10-batches-bin.unfinished"));
}

// If these change, all results on this set change: increase kVersion in synthesize.cc.
TEST(Synthesize, TheBytesAreAFunctionOfTheArguments) {
  const TempDir dir;
  Make(dir);
  const Datasets sets = OpenCifar10(dir.string());
  EXPECT_EQ(fmt::format("{:016x}", sets.train->Fingerprint()), "51de7316b103deae");
  EXPECT_EQ(fmt::format("{:016x}", sets.test->Fingerprint()), "39238406475013d8");
}

TEST(Synthesize, AnImageDependsOnSeedAndNumberAlone) {
  const TempDir few, many, other;
  Make(few, 7, 20, 30);
  Make(many, 7, 40, 10);
  Make(other, 8, 20, 30);
  const auto file = [](const TempDir& dir, const char* name) {
    return ReadBytes(dir / kCifar10Folder / name);
  };
  EXPECT_EQ(file(few, "data_batch_1.bin") + file(few, "data_batch_2.bin"),
            file(many, "data_batch_1.bin"));
  EXPECT_EQ(file(few, "test_batch.bin").substr(0, 10 * 3073), file(many, "test_batch.bin"));
  EXPECT_NE(file(few, "data_batch_1.bin"), file(other, "data_batch_1.bin"));
  EXPECT_NE(file(few, "data_batch_1.bin"), file(few, "test_batch.bin").substr(0, 20 * 3073));
}

TEST(Synthesize, ClassesAreBalancedAndColourTellsNothing) {
  constexpr int kImages = 5000;
  std::array<int, 10> counts = {};
  std::array<double, 10> brightness = {};
  std::array<uint8_t, kCifar10RecordBytes> record;
  for (uint64_t number = 0; number < kImages; ++number) {
    RenderSynthetic(1, number, record);
    ++counts[record[0]];
    for (size_t i = 1; i < record.size(); ++i) {
      brightness[record[0]] += record[i] / (kImages / 10.0 * kCifar10PixelBytes);
    }
  }
  for (int label = 0; label < 10; ++label) {
    EXPECT_EQ(counts[label], kImages / 10);
    EXPECT_NEAR(brightness[label], 128, 5) << kSyntheticClasses[label];
  }
}

TEST(Synthesize, TheSameSetAgainIsNoError) {
  const TempDir dir;
  Make(dir);
  const fs::path file = dir / kCifar10Folder / "test_batch.bin";
  const auto time = fs::last_write_time(file);
  Make(dir);
  EXPECT_EQ(fs::last_write_time(file), time);
}

TEST(Synthesize, RefusesToReplaceAnythingElse) {
  const TempDir dir;
  Make(dir);
  const fs::path folder = dir / kCifar10Folder;
  EXPECT_MUSTER_ERROR(Make(dir, 8), ExitCode::kData, HasSubstr(folder.string()));
  EXPECT_MUSTER_ERROR(Make(dir, 7, 21), ExitCode::kData, HasSubstr(folder.string()));
  fs::remove(folder / "test_batch.bin");
  EXPECT_MUSTER_ERROR(Make(dir), ExitCode::kData, HasSubstr("test_batch.bin"));

  const TempDir real;
  WriteCifar10(real / kCifar10Folder);
  EXPECT_MUSTER_ERROR(Make(real), ExitCode::kData, HasSubstr(real.string()));
  const TempDir flat;
  WriteCifar10(flat.path());
  EXPECT_MUSTER_ERROR(Make(flat), ExitCode::kData, HasSubstr(flat.string()));
  EXPECT_FALSE(fs::exists(flat / kCifar10Folder));
}

TEST(Synthesize, RemovesWhatAnInterruptedRunLeft) {
  const TempDir dir;
  const fs::path left = dir / ".cifar-10-batches-bin.unfinished";
  fs::create_directories(left);
  WriteBytes(left / "data_batch_1.bin", "half");
  fs::create_directory(dir / kCifar10Folder);  // an empty folder is no obstacle
  Make(dir);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_EQ(OpenCifar10(dir.string()).train->size(), 100);
}

TEST(Synthesize, RefusesEmptySetsAndTwoWritersAtOnce) {
  const TempDir dir;
  EXPECT_MUSTER_ERROR(Make(dir, 1, 0, 10), ExitCode::kUsage, HasSubstr("at least 1"));
  const UniqueFd lock = LockDataFolder(dir.path());
  EXPECT_MUSTER_ERROR(Make(dir), ExitCode::kFailure, HasSubstr(dir.string()));
}

TEST(Synthesize, NamesADirectoryThatCannotBeMade) {
  const TempDir dir;
  WriteBytes(dir / "file", "");
  EXPECT_MUSTER_ERROR(SynthesizeCifar10((dir / "file").string(), 1, 1, 1), ExitCode::kFailure,
                      HasSubstr((dir / "file").string()));
}

}  // namespace
}  // namespace muster
