// The CIFAR-10 reader, and its errors about bad files.
#include "worker/data/cifar10.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "proto/config.pb.h"
#include "tests/data/expect_error.h"
#include "tests/data/test_sets.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::PlanesOf;
using testing::ReadBytes;
using testing::Records;
using testing::TempDir;
using testing::WriteBytes;
using testing::WriteCifar10;

TEST(Cifar10, ReadsEveryRecordInOrder) {
  const TempDir dir;
  WriteCifar10(dir.path(), 3, 4);
  const Datasets sets = OpenCifar10(dir.string());
  ASSERT_EQ(sets.train->size(), 15);
  ASSERT_EQ(sets.test->size(), 4);
  EXPECT_EQ(sets.train->shape(), (Shape{32, 32, 3}));
  EXPECT_EQ(sets.train->classes(), 10);
  for (int64_t i = 0; i < 15; ++i) {
    const std::string file = Records(3, static_cast<unsigned>(i / 3));
    const std::string record = file.substr(static_cast<size_t>(i % 3) * 3073, 3073);
    EXPECT_EQ(sets.train->Label(i), record[0]);
    const auto planes = PlanesOf(*sets.train, i);
    EXPECT_EQ(std::string(planes.begin(), planes.end()), record.substr(1));
  }
}

TEST(Cifar10, FilesMayHaveDifferentSizes) {
  const TempDir dir;
  WriteCifar10(dir.path(), 3);
  WriteBytes(dir / "data_batch_2.bin", Records(1, 90));
  WriteBytes(dir / "data_batch_4.bin", Records(7, 91));
  const Datasets sets = OpenCifar10(dir.string());
  ASSERT_EQ(sets.train->size(), 3 + 1 + 3 + 7 + 3);
  EXPECT_EQ(PlanesOf(*sets.train, 3)[0], static_cast<uint8_t>(Records(1, 90)[1]));
  EXPECT_EQ(PlanesOf(*sets.train, 13)[0], static_cast<uint8_t>(Records(7, 91)[6 * 3073 + 1]));
  EXPECT_EQ(PlanesOf(*sets.train, 14)[0], static_cast<uint8_t>(Records(3, 4)[1]));
}

TEST(Cifar10, FingerprintIsTheHashOfAllRecords) {
  const TempDir dir;
  WriteCifar10(dir.path());
  const Datasets sets = OpenCifar10(dir.string());
  std::string all;
  for (const char* name : kCifar10TrainFiles) all += ReadBytes(dir / name);
  EXPECT_EQ(sets.train->Fingerprint(), XXH3_64bits(all.data(), all.size()));
  EXPECT_EQ(sets.train->Fingerprint(), sets.train->Fingerprint());

  all[5000] ^= 1;  // a single bit of one pixel
  WriteBytes(dir / kCifar10TrainFiles[0], all.substr(0, 3 * 3073));
  EXPECT_NE(OpenCifar10(dir.string()).train->Fingerprint(),
            XXH3_64bits(ReadBytes(dir / kCifar10TestFile).data(), 4 * 3073));
  EXPECT_EQ(OpenCifar10(dir.string()).train->Fingerprint(), XXH3_64bits(all.data(), all.size()));
}

TEST(Cifar10, LooksInTheFolderOfTheArchiveToo) {
  const TempDir dir;
  WriteCifar10(dir / kCifar10Folder);
  EXPECT_EQ(OpenCifar10(dir.string()).train->size(), 15);
  EXPECT_EQ(FindCifar10(dir.string()), (dir / kCifar10Folder).string());
  EXPECT_EQ(FindCifar10((dir / kCifar10Folder).string()), (dir / kCifar10Folder).string());
}

TEST(Cifar10, StaysWholeWhenTheFilesAreDeleted) {
  const TempDir dir;
  WriteCifar10(dir.path());
  const Datasets sets = OpenCifar10(dir.string());
  for (const char* name : kCifar10TrainFiles) fs::remove(dir / name);
  EXPECT_EQ(sets.train->Label(2), 2);
}

// Replaces one file of a valid set. The error must name it.
class BadFile : public ::testing::Test {
 protected:
  BadFile() { WriteCifar10(dir_.path()); }
  fs::path file() const { return dir_ / "data_batch_3.bin"; }
  void ExpectError(const ::testing::Matcher<std::string>& matcher) const {
    EXPECT_MUSTER_ERROR(OpenCifar10(dir_.string()), ExitCode::kData,
                        AllOf(HasSubstr(file().string()), matcher));
  }
  const TempDir dir_;
};

TEST_F(BadFile, Truncated) {
  WriteBytes(file(), Records(3, 1).substr(0, 2 * 3073 + 100));
  ExpectError(AllOf(HasSubstr("whole number of 3073-byte"), HasSubstr("found 6246 bytes"),
                    HasSubstr("2 records and 100 bytes"), HasSubstr("truncated")));
}

TEST_F(BadFile, Empty) {
  WriteBytes(file(), "");
  ExpectError(AllOf(HasSubstr("found 0 bytes"), HasSubstr("empty")));
}

TEST_F(BadFile, Foreign) {
  WriteBytes(file(), "<html>not found</html>");
  ExpectError(HasSubstr("not a CIFAR-10 file"));
}

TEST_F(BadFile, BadLabel) {
  std::string bytes = Records(3, 1);
  bytes[2 * 3073] = 10;
  WriteBytes(file(), bytes);
  ExpectError(AllOf(HasSubstr("label from 0 to 9"), HasSubstr("record 2"), HasSubstr("byte 6146"),
                    HasSubstr("found 10")));
}

TEST_F(BadFile, Missing) {
  fs::remove(file());
  ExpectError(HasSubstr("No such file"));
}

TEST_F(BadFile, Directory) {
  fs::remove(file());
  fs::create_directory(file());
  ExpectError(HasSubstr("expected a plain file"));
}

TEST_F(BadFile, NamedPipe) {
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  ExpectError(HasSubstr("expected a plain file"));
}

// Files cut between two records, as broken copies may be. Nothing in the files themselves shows it.
class WholeRecords : public ::testing::Test {
 protected:
  // Writes a set of the published size with equal records.
  void WritePublished() const {
    fs::create_directories(dir_.path());
    const std::string records(static_cast<size_t>(kCifar10PublishedRecords * kCifar10RecordBytes),
                              '\1');
    for (const char* name : kCifar10TrainFiles) WriteBytes(dir_ / name, records);
    WriteBytes(dir_ / kCifar10TestFile, records);
  }
  void Cut(const char* name, int64_t records) const {
    fs::resize_file(dir_ / name, static_cast<uintmax_t>(records * kCifar10RecordBytes));
  }
  void ExpectError(const char* name, const std::string& expected) const {
    EXPECT_MUSTER_ERROR(
        OpenCifar10(dir_.string()), ExitCode::kData,
        AllOf(HasSubstr((dir_ / name).string()), HasSubstr(expected), HasSubstr("truncated")));
  }
  const TempDir dir_;
};

TEST_F(WholeRecords, MissingFromThePublishedSet) {
  WritePublished();
  EXPECT_EQ(OpenCifar10(dir_.string()).train->size(), 50000);
  EXPECT_EQ(OpenCifar10(dir_.string()).remark, "");
  Cut(kCifar10TestFile, 9999);
  ExpectError(kCifar10TestFile, "expected 10000 records, as in the published files");
  Cut(kCifar10TrainFiles[0], 100);
  ExpectError(kCifar10TrainFiles[0], "and data_batch_2.bin, found 100");
  // If no file has the published size, it is a user's own set.
  for (const char* name : kCifar10TrainFiles) Cut(name, 100);
  EXPECT_EQ(OpenCifar10(dir_.string()).train->size(), 500);
  EXPECT_EQ(OpenCifar10(dir_.string()).remark,
            "expected 10,000 images per training file as published, found 100 in each");
  Cut(kCifar10TrainFiles[0], 99);
  EXPECT_EQ(OpenCifar10(dir_.string()).remark, "");
}

TEST_F(WholeRecords, MissingFromAProceduralSet) {
  WriteCifar10(dir_.path(), 3, 4);
  const std::string note = "version 1\nimages_per_training_file 3\ntest_images 4\n";
  WriteBytes(dir_ / kSyntheticNote, note);
  EXPECT_EQ(OpenCifar10(dir_.string()).test->size(), 4);
  EXPECT_THAT(OpenCifar10(dir_.string()).remark, ::testing::HasSubstr("synthetic images"));
  Cut(kCifar10TrainFiles[4], 2);
  ExpectError(kCifar10TrainFiles[4],
              "expected 3 records, as stated in " + (dir_ / kSyntheticNote).string());
}

TEST_F(WholeRecords, OfAProceduralSetWithPublishedAndOtherSizes) {
  WritePublished();
  Cut(kCifar10TestFile, 70);
  WriteBytes(dir_ / kSyntheticNote, "images_per_training_file 10000\ntest_images 70\n");
  EXPECT_EQ(OpenCifar10(dir_.string()).test->size(), 70);
}

config::Data DataIn(const std::string& dir) {
  config::Data data;
  data.set_format(config::Data::CIFAR10);
  data.set_dir(dir);
  return data;
}

TEST(OpenDatasets, SaysHowToGetTheData) {
  const TempDir dir;
  const std::string missing = (dir / "nowhere").string();
  EXPECT_MUSTER_ERROR(OpenDatasets(DataIn(missing), 1), ExitCode::kData,
                      AllOf(HasSubstr(missing), HasSubstr("data_batch_1.bin"),
                            HasSubstr("muster data get cifar10 " + missing),
                            HasSubstr("muster data synth " + missing)));
  WriteCifar10(missing);
  EXPECT_EQ(OpenDatasets(DataIn(missing), 1).test->size(), 4);
}

// Nothing is downloaded into a user's folder of pictures.
TEST(OpenDatasets, AFolderOfPicturesIsLeftAlone) {
  const TempDir dir;
  WriteBytes(dir / "cat.png", "\x89PNG");
  EXPECT_MUSTER_ERROR(OpenDatasets(DataIn(dir.string()), 1), ExitCode::kData,
                      AllOf(HasSubstr("IMAGE_FOLDER"), HasSubstr("data get cifar10 data/cifar10"),
                            Not(HasSubstr("cifar10 " + dir.string()))));
}

TEST(OpenEvaluatedSet, NeedsNoTrainingFiles) {
  const TempDir dir;
  WriteCifar10(dir.path());
  const uint64_t fingerprint = OpenDatasets(DataIn(dir.string()), 1).test->Fingerprint();
  WriteBytes(dir / "data_batch_2.bin", Records(10000, 1));
  EXPECT_MUSTER_ERROR(
      OpenEvaluatedSet(DataIn(dir.string()), 1), ExitCode::kData,
      HasSubstr("test_batch.bin: expected 10000 records, as in the published files"));
  for (const char* name : kCifar10TrainFiles) fs::remove(dir / name);
  EXPECT_EQ(OpenEvaluatedSet(DataIn(dir.string()), 1).test->size(), 4);
  EXPECT_EQ(OpenEvaluatedSet(DataIn(dir.string()), 1).test->Fingerprint(), fingerprint);
  WriteBytes(dir / "synthetic.txt", "images_per_training_file 3\ntest_images 5\n");
  EXPECT_MUSTER_ERROR(OpenEvaluatedSet(DataIn(dir.string()), 1), ExitCode::kData,
                      HasSubstr("test_batch.bin: expected 5 records"));
  fs::remove(dir / "test_batch.bin");
  EXPECT_MUSTER_ERROR(OpenEvaluatedSet(DataIn(dir.string()), 1), ExitCode::kData,
                      HasSubstr("muster data get cifar10"));
}

TEST(OpenDatasets, TheRemedyFitsWhatIsThere) {
  const TempDir dir;
  WriteCifar10(dir.path());
  fs::resize_file(dir / "data_batch_2.bin", 100);
  EXPECT_MUSTER_ERROR(OpenDatasets(DataIn(dir.string()), 1), ExitCode::kData,
                      HasSubstr("Move this set away and download it again with `muster data get"));
  const std::string file = (dir / "data_batch_1.bin").string();
  EXPECT_MUSTER_ERROR(OpenDatasets(DataIn(file), 1), ExitCode::kData,
                      AllOf(HasSubstr(file + ": expected a directory"), HasSubstr("--data DIR"),
                            Not(HasSubstr("muster data get"))));
}

TEST(OpenDatasets, NamesTheSettingThatIsMissing) {
  EXPECT_MUSTER_ERROR(OpenDatasets(DataIn(""), 1), ExitCode::kUsage, HasSubstr("data.dir"));
}

}  // namespace
}  // namespace muster
