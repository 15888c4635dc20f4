#include "worker/data/image_folder.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_dir.h"
#include "tests/image/encode.h"
#include "worker/data/pipeline.h"

namespace muster::testing {
namespace image_folder_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSide = 8;

std::string Text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

// An image of a single colour.
std::string Png(uint16_t red, uint16_t green, uint16_t blue, uint32_t side = 12) {
  PngSpec spec{.height = side, .width = side};
  for (uint32_t i = 0; i < side * side; ++i) {
    spec.samples.insert(spec.samples.end(), {red, green, blue});
  }
  return Text(EncodePng(spec));
}

std::string Jpeg(int height, int width) {
  return Text(EncodeJpeg({.height = height,
                          .width = width,
                          .pixels = Photo(height, width, 3),
                          .across = 2,
                          .down = 2}));
}

class ImageFolderTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((dir_ / name).parent_path());
    WriteBytes(dir_ / name, bytes);
  }
  // Two classes, three images for training and two for evaluations.
  void WriteGoodSet() const {
    Write("train/dog/1.png", Png(200, 0, 0));
    Write("train/dog/deeper/2.JPG", Jpeg(40, 30));
    Write("train/cat/a.jpeg", Jpeg(9, 100));
    Write("val/cat/x.png", Png(0, 51, 255));
    Write("val/dog/y.png", Png(51, 102, 153));
  }
  config::Data Data() const {
    config::Data data;
    data.set_format(config::Data::IMAGE_FOLDER);
    data.set_dir(dir_.string());
    data.mutable_preprocess()->set_crop_height(kSide);
    data.mutable_preprocess()->set_crop_width(kSide);
    ResolveFromFiles(data);
    return data;
  }
  std::vector<int32_t> Labels(const Dataset& set) const {
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < set.size(); ++i) labels.push_back(set.Label(i));
    return labels;
  }
  std::vector<float> Evaluated(const config::Data& data, int64_t sample) const {
    const Datasets sets = OpenDatasets(data, 1);
    const auto loader = sets.validation->MakeLoader(data);
    std::vector<float> image(static_cast<size_t>(loader->shape().elements()));
    loader->Evaluate(sample, *loader->MakeScratch(), image.data());
    return image;
  }
  const TempDir dir_;
};

TEST_F(ImageFolderTest, ReadsAFolderForEachClass) {
  WriteGoodSet();
  Write("train/cat/notes.txt", "no image");
  Write("train/cat/.hidden.png", "no image");
  Write("train/.cache/z.png", "no image");
  const config::Data data = Data();
  EXPECT_THAT(data.class_names(), ElementsAre("cat", "dog"));
  EXPECT_EQ(DataClasses(data), 2);
  const Datasets sets = OpenDatasets(data, 1);
  EXPECT_THAT(Labels(*sets.train), ElementsAre(0, 1, 1));
  EXPECT_THAT(Labels(*sets.validation), ElementsAre(0, 1));
  EXPECT_EQ(sets.train->shape(), (Shape{kSide, kSide, 3}));
  EXPECT_EQ(sets.train->classes(), 2);
  EXPECT_THAT(sets.remark, HasSubstr("1 file"));
  EXPECT_EQ(EvaluatedSetOf(OpenEvaluatedSet(data, 1)).Fingerprint(),
            sets.validation->Fingerprint());
}

TEST_F(ImageFolderTest, ClassesMayHaveAnOrderOfTheirOwn) {
  WriteGoodSet();
  config::Data data = Data();
  data.set_class_names(0, "dog");
  data.set_class_names(1, "cat");
  EXPECT_THAT(Labels(*OpenDatasets(data, 1).train), ElementsAre(0, 0, 1));
}

TEST_F(ImageFolderTest, NormalizesEachChannel) {
  WriteGoodSet();
  config::Data data = Data();
  for (const double mean : {0.5, 0.25, 0.0}) data.mutable_preprocess()->add_mean(mean);
  for (const double stddev : {0.5, 0.25, 2.0}) data.mutable_preprocess()->add_stddev(stddev);
  const std::vector<float> image = Evaluated(data, 1);
  for (size_t i = 0; i < image.size(); i += 3) {
    EXPECT_NEAR(image[i], (0.2 - 0.5) / 0.5, 1e-6);
    EXPECT_NEAR(image[i + 1], (0.4 - 0.25) / 0.25, 1e-6);
    EXPECT_NEAR(image[i + 2], 0.6 / 2, 1e-6);
  }
  std::vector<uint8_t> buffer;
  const std::span<const uint8_t> planes = OpenDatasets(data, 1).validation->Planes(1, buffer);
  EXPECT_THAT(planes.subspan(0, kSide * kSide), Each(51));
  EXPECT_THAT(planes.subspan(2 * kSide * kSide), Each(153));
}

TEST_F(ImageFolderTest, GreyImagesHaveOneChannel) {
  WriteGoodSet();
  config::Data data = Data();
  data.mutable_image_folder()->set_channels(1);
  EXPECT_EQ(StoredShape(data), (Shape{kSide, kSide, 1}));
  const float grey = (19595.0F * 51 + 38470.0F * 102 + 7471.0F * 153) / 65536;
  EXPECT_THAT(Evaluated(data, 1), Each(::testing::FloatNear(std::round(grey) / 255, 1e-6)));
}

// What a device makes of the bytes is what the host makes itself, in training and evaluations.
TEST_F(ImageFolderTest, BytesAndTheirScaleAreTheFloats) {
  for (const char* name : {"dog/1.jpg", "dog/2.jpg", "cat/1.jpg", "cat/2.jpg"}) {
    Write(name, Jpeg(40, 30));
  }
  config::Data data = Data();
  data.mutable_preprocess()->set_jitter_contrast(0.4);
  for (const double mean : {0.5, 0.25, 0.0}) data.mutable_preprocess()->add_mean(mean);
  for (const double stddev : {0.5, 0.25, 2.0}) data.mutable_preprocess()->add_stddev(stddev);
  data.set_validation_fraction(0.5);
  const Datasets sets = OpenDatasets(data, 1);
  const auto expect_same = [](BatchPipeline& floats, BatchPipeline& pixels) {
    const PreparedBatch &expected = floats.Next(60), &batch = pixels.Next(60);
    ASSERT_EQ(batch.count, expected.count);
    EXPECT_EQ(batch.images, nullptr);
    const int64_t values = batch.count * kSide * kSide * 3;
    std::vector<float> scaled;
    for (int64_t i = 0; i < values; ++i) {
      scaled.push_back((static_cast<float>(batch.pixels[i]) - batch.scale->centre[i % 3]) *
                       batch.scale->scale[i % 3]);
    }
    EXPECT_EQ(scaled, std::vector<float>(expected.images, expected.images + values));
  };
  TrainPipelineOptions options{
      .plan = {.train_samples = sets.train->size(), .global_batch = 2, .total_steps = 1},
      .slices = {{0, 1}},
      .data = data};
  ASSERT_TRUE(CanMakePixels(*sets.train, data, true));
  const auto floats = MakeTrainPipeline(*sets.train, options);
  options.images = ImagesBy::kHostPixels;
  expect_same(*floats, *MakeTrainPipeline(*sets.train, options));
  expect_same(*MakeEvaluationPipeline(*sets.validation, data, 2, {0, 1}),
              *MakeEvaluationPipeline(*sets.validation, data, 2, {0, 1}, ImagesBy::kHostPixels));
}

TEST_F(ImageFolderTest, TheBitsOfASampleFollowFromSeedEpochAndSample) {
  WriteGoodSet();
  config::Data data = Data();
  config::Preprocess& p = *data.mutable_preprocess();
  p.set_training_crop(config::Preprocess::RESIZED);
  p.set_flip(true);
  p.set_jitter_brightness(0.4);
  p.set_jitter_contrast(0.4);
  p.set_jitter_saturation(0.4);
  p.set_erasing_probability(0.5);
  const Datasets sets = OpenDatasets(data, 1);
  const auto loader = sets.train->MakeLoader(data);
  const auto scratch = loader->MakeScratch();
  const auto drawn = [&](int64_t sample, uint64_t seed, int64_t epoch) {
    std::vector<float> image(static_cast<size_t>(loader->shape().elements()));
    loader->Train(sample, seed, epoch, *scratch, image.data());
    return image;
  };
  const std::vector<float> first = drawn(1, 1, 0);
  (void)drawn(2, 1, 0);
  EXPECT_EQ(drawn(1, 1, 0), first);
  EXPECT_NE(drawn(1, 2, 0), first);
  EXPECT_NE(drawn(1, 1, 1), first);
  EXPECT_NE(drawn(0, 1, 0), first);
}

TEST_F(ImageFolderTest, AFractionIsHeldOutWithoutAFolderForIt) {
  for (int i = 0; i < 60; ++i) {
    Write((i % 2 == 0 ? "cat/" : "dog/") + std::to_string(i) + ".png", Png(i, i, i));
  }
  config::Data data = Data();
  EXPECT_MUSTER_ERROR(OpenDatasets(data, 1), ExitCode::kData, HasSubstr("validation_fraction"));
  data.set_validation_fraction(0.3);
  const auto colours = [&](const Dataset& set) {
    std::vector<int> found;
    for (int64_t i = 0; i < set.size(); ++i) {
      std::vector<uint8_t> buffer;
      found.push_back(set.Planes(i, buffer)[0]);
    }
    std::ranges::sort(found);
    return found;
  };
  const Datasets sets = OpenDatasets(data, 1);
  const std::vector<int> training = colours(*sets.train), held_out = colours(*sets.validation);
  EXPECT_EQ(training.size() + held_out.size(), 60U);
  EXPECT_NEAR(static_cast<double>(held_out.size()), 18, 9);
  EXPECT_EQ(EvaluatedSetOf(OpenEvaluatedSet(data, 1)).Fingerprint(),
            sets.validation->Fingerprint());
  std::vector<uint8_t> buffer;  // each photo has the color of its name
  EXPECT_THAT(sets.validation->FileOf(0),
              EndsWith("/" + std::to_string(sets.validation->Planes(0, buffer)[0]) + ".png"));
  EXPECT_NE(OpenDatasets(data, 2).validation->Fingerprint(), sets.validation->Fingerprint());
  // Adding files does not move these to the other part.
  for (int i = 60; i < 90; ++i) Write("cat/" + std::to_string(i) + ".png", Png(i, i, i));
  const Datasets more = OpenDatasets(data, 1);
  EXPECT_TRUE(std::ranges::includes(colours(*more.train), training));
  EXPECT_TRUE(std::ranges::includes(colours(*more.validation), held_out));
}

TEST_F(ImageFolderTest, ThereMayBeTwoFoldersForEvaluations) {
  WriteGoodSet();
  Write("test/cat/1.png", Png(1, 1, 1));
  Write("test/dog/1.png", Png(2, 2, 2));
  Write("test/dog/2.png", Png(3, 3, 3));
  const Datasets sets = OpenDatasets(Data(), 1);
  EXPECT_EQ(sets.train->size(), 3);
  EXPECT_EQ(SizeOf(sets.validation), 2);
  EXPECT_EQ(SizeOf(sets.test), 3);
  EXPECT_EQ(EvaluatedSetOf(OpenEvaluatedSet(Data(), 1)).size(), 3);
  EXPECT_EQ(sets.test->FileOf(1), "test/dog/1.png");
  config::Data data = Data();
  data.set_validation_fraction(0.5);
  EXPECT_THAT(OpenDatasets(data, 1).remark, HasSubstr("has no effect because of"));
  EXPECT_EQ(OpenDatasets(data, 1).train->size(), 3);
}

TEST_F(ImageFolderTest, TwoFoldersForTheSameSetAreRefused) {
  WriteGoodSet();
  Write("Validation/cat/1.png", Png(1, 1, 1));
  EXPECT_MUSTER_ERROR(FindImageFolders(dir_.string()), ExitCode::kData,
                      AllOf(HasSubstr("/Validation and "), HasSubstr("/val: ")));
}

TEST_F(ImageFolderTest, ATestFolderLeavesTheTrainingSetWhole) {
  for (int i = 0; i < 40; ++i) {
    Write((i % 2 == 0 ? "train/cat/" : "train/dog/") + std::to_string(i) + ".png", Png(i, i, i));
  }
  Write("test/cat/1.png", Png(1, 1, 1));
  Write("test/dog/1.png", Png(2, 2, 2));
  config::Data data = Data();
  EXPECT_EQ(OpenDatasets(data, 1).validation, nullptr);
  EXPECT_EQ(OpenDatasets(data, 1).train->size(), 40);
  data.set_validation_fraction(0.3);
  const Datasets sets = OpenDatasets(data, 1);
  EXPECT_EQ(sets.train->size() + SizeOf(sets.validation), 40);
  EXPECT_GT(SizeOf(sets.validation), 0);
  EXPECT_EQ(SizeOf(sets.test), 2);
}

TEST_F(ImageFolderTest, TheFingerprintFollowsTheNames) {
  WriteGoodSet();
  const config::Data data = Data();
  const uint64_t before = OpenDatasets(data, 1).train->Fingerprint();
  Write("train/dog/1.png", Png(1, 2, 3, 100));  // repaired
  EXPECT_EQ(OpenDatasets(data, 1).train->Fingerprint(), before);
  fs::rename(dir_ / "train/dog/1.png", dir_ / "train/dog/3.png");
  EXPECT_NE(OpenDatasets(data, 1).train->Fingerprint(), before);
}

TEST_F(ImageFolderTest, TheContentsAreSizesAndASample) {
  WriteGoodSet();
  const config::Data data = Data();
  const auto contents = [&] { return OpenDatasets(data, 1).train->Contents(); };
  const uint64_t before = contents();
  EXPECT_EQ(contents(), before);
  const auto rewrite = [&](const std::string& name, size_t at) {
    std::fstream file(dir_ / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put('#');
  };
  rewrite("train/dog/1.png", 40);  // the size stays
  EXPECT_NE(contents(), before);
  // It reads the beginning of every third of 384 photos, but all sizes count.
  for (int i = 0; i < 381; ++i) {
    Write("train/cat/b" + std::to_string(1000 + i) + ".png", std::string(i == 2 ? 70000 : 99, 'x'));
  }
  const uint64_t many = contents();
  rewrite("train/cat/b1000.png", 10);
  rewrite("train/cat/b1002.png", 69000);
  EXPECT_EQ(contents(), many);
  Write("train/cat/b1000.png", std::string(98, 'x'));
  EXPECT_NE(contents(), many);
  Write("train/cat/b1000.png", std::string(99, 'x'));
  EXPECT_EQ(contents(), many);
  rewrite("train/cat/b1002.png", 10);
  EXPECT_NE(contents(), many);
}

// Photos must not change during a run.
TEST_F(ImageFolderTest, APhotoThatChangesMeanwhileIsNamed) {
  WriteGoodSet();
  const config::Data data = Data();
  const Datasets sets = OpenDatasets(data, 1);
  const auto loader = sets.validation->MakeLoader(data);
  std::vector<float> image(static_cast<size_t>(loader->shape().elements()));
  Write("val/cat/x.png", Png(1, 2, 3, 100));
  EXPECT_MUSTER_ERROR(
      loader->Evaluate(0, *loader->MakeScratch(), image.data()), ExitCode::kData,
      HasSubstr("val/cat/x.png: the size changed after the files were listed: expected "));
}

TEST_F(ImageFolderTest, FoldersOfSetsMayHaveOtherNames) {
  WriteGoodSet();
  fs::rename(dir_ / "train", dir_ / "Training");
  fs::rename(dir_ / "val", dir_ / "Validation");
  EXPECT_EQ(OpenDatasets(Data(), 1).train->size(), 3);
  fs::remove_all(dir_ / "Training");
  EXPECT_EQ(EvaluatedSetOf(OpenEvaluatedSet(Data(), 1)).size(), 2);
  EXPECT_MUSTER_ERROR(OpenDatasets(Data(), 1), ExitCode::kData, HasSubstr("train"));
}

TEST_F(ImageFolderTest, AFolderThatCannotBeReadIsNamed) {
  config::Data data;
  data.set_format(config::Data::IMAGE_FOLDER);
  data.set_dir((dir_ / "nowhere").string());
  EXPECT_MUSTER_ERROR(ResolveFromFiles(data), ExitCode::kData,
                      HasSubstr("nowhere: cannot be read: No such file"));
  Write("train/d\xffg/1.png", Png(1, 2, 3));
  data.set_dir(dir_.string());
  EXPECT_MUSTER_ERROR(ResolveFromFiles(data), ExitCode::kData, HasSubstr("UTF-8"));
}

TEST_F(ImageFolderTest, AnEmptyClassIsNamed) {
  WriteGoodSet();
  Write("train/bird/readme.txt", "");
  Write("val/bird/1.png", Png(1, 1, 1));
  EXPECT_MUSTER_ERROR(OpenDatasets(Data(), 1), ExitCode::kData,
                      AllOf(HasSubstr("train/bird"), HasSubstr("none")));
}

TEST_F(ImageFolderTest, AClassThatIsMissingForEvaluationsIsNamed) {
  WriteGoodSet();
  Write("train/bird/1.png", Png(1, 1, 1));
  Write("val/fish/1.png", Png(1, 1, 1));
  EXPECT_MUSTER_ERROR(OpenDatasets(Data(), 1), ExitCode::kData,
                      AllOf(HasSubstr("/val: "), HasSubstr("none for bird"), HasSubstr("fish"),
                            Not(HasSubstr("cat"))));
}

TEST_F(ImageFolderTest, TwoSpellingsOfAClassAreNamed) {
  WriteGoodSet();
  Write("train/Cat/1.png", Png(1, 1, 1));
  Write("val/Cat/1.png", Png(1, 1, 1));
  EXPECT_MUSTER_ERROR(OpenDatasets(Data(), 1), ExitCode::kData,
                      AllOf(HasSubstr("\"Cat\""), HasSubstr("\"cat\"")));
}

TEST_F(ImageFolderTest, AFileThatCannotBeDecodedIsNamed) {
  WriteGoodSet();
  const config::Data data = Data();
  const Datasets sets = OpenDatasets(data, 1);
  const auto loader = sets.validation->MakeLoader(data);
  const auto scratch = loader->MakeScratch();
  std::vector<float> image(static_cast<size_t>(loader->shape().elements()));
  Write("val/cat/x.png", Png(0, 0, 0).substr(0, 45));
  EXPECT_MUSTER_ERROR(loader->Evaluate(0, *scratch, image.data()), ExitCode::kData,
                      HasSubstr("val/cat/x.png: "));
  fs::remove(dir_ / "val/cat/x.png");
  EXPECT_MUSTER_ERROR(loader->Evaluate(0, *scratch, image.data()), ExitCode::kData,
                      HasSubstr("val/cat/x.png: "));
}

TEST_F(ImageFolderTest, LoosePhotosThatCannotBeReadAreBlackAndNamed) {
  WriteGoodSet();
  Write("broken", "no photo");
  const config::Data data = Data();
  const std::string cats = dir_ / "val/cat", broken = dir_ / "broken";
  const LoosePhotos photos = OpenLoosePhotos({broken, cats, dir_ / "train"}, data);
  ASSERT_THAT(photos.paths, ElementsAre(broken, cats + "/x.png", dir_ / "train/cat/a.jpeg",
                                        dir_ / "train/dog/1.png", dir_ / "train/dog/deeper/2.JPG"));
  const auto loader = photos.set->MakeLoader(data);
  const auto scratch = loader->MakeScratch();
  std::vector<float> image(kSide * kSide * 3, 7);
  loader->Evaluate(0, *scratch, image.data());
  EXPECT_THAT(image, Each(0));
  EXPECT_THAT((*photos.troubles)[0], AllOf(HasSubstr(broken), Not(HasSubstr("data check"))));
  loader->Evaluate(1, *scratch, image.data());
  EXPECT_EQ(image, Evaluated(data, 0));
  EXPECT_EQ((*photos.troubles)[1], "");
}

}  // namespace image_folder_test
}  // namespace muster::testing
