// data.preprocess.measure_mean_stddev.
#include "worker/data/measure.h"

#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "cli/data/normalization.h"
#include "common/base/error.h"
#include "proto/config.pb.h"
#include "tests/data/temp_dir.h"
#include "tests/data/test_sets.h"
#include "tests/image/encode.h"
#include "worker/data/preprocess.h"

namespace muster::testing {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(MeasureTest, IsTheMeanAndTheDeviationOfAllPixels) {
  const MemorySet set(300, {5, 4, 3});
  const auto loader = MakePlanesLoader(set, {});
  const ChannelMoments moments = MeasureChannels(set, *loader, 2);
  EXPECT_EQ(moments.samples, 300);
  EXPECT_THAT(moments.constant, IsEmpty());
  ASSERT_THAT(moments.mean, SizeIs(3));
  for (size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (int64_t sample = 0; sample < 300; ++sample) {
      for (const uint8_t pixel : PlanesOf(set, sample).subspan(c * 20, 20)) {
        sum += pixel;
        squares += pixel * pixel;
      }
    }
    const double mean = sum / 6000;
    EXPECT_THAT(moments.mean[c], DoubleNear(mean / 255, 1e-7));
    EXPECT_THAT(moments.stddev[c], DoubleNear(std::sqrt(squares / 6000 - mean * mean) / 255, 1e-7));
  }
}

TEST(MeasureTest, HasTheSameBitsOnAnyNumberOfThreads) {
  const MemorySet set(700, {3, 3, 2});
  const auto loader = MakePlanesLoader(set, {});
  const ChannelMoments one = MeasureChannels(set, *loader, 1);
  for (const int threads : {2, 3, 7}) {
    const ChannelMoments more = MeasureChannels(set, *loader, threads);
    EXPECT_EQ(more.mean, one.mean);
    EXPECT_EQ(more.stddev, one.stddev);
  }
}

// One sample for each number. The test sets the last one's channels.
class RowLoader final : public SampleLoader {
 public:
  Shape shape() const override { return {1, 1, 3}; }
  std::unique_ptr<LoaderScratch> MakeScratch() const override {
    return std::make_unique<LoaderScratch>();
  }
  void Train(int64_t, uint64_t, int64_t, LoaderScratch&, ImageTarget) const override {}
  void Evaluate(int64_t sample, LoaderScratch&, ImageTarget target) const override {
    if (sample == broken) throw Error(ExitCode::kData, "sample {}: is broken", sample);
    last = std::max<int64_t>(last, sample);
    float* const image = std::get<float*>(target);
    image[0] = 1e6f + static_cast<float>(sample % 2);
    image[1] = 7;
    image[2] = static_cast<float>(sample);
  }
  int64_t broken = -1;
  mutable std::atomic<int64_t> last = 0;
};

TEST(MeasureTest, KeepsTheDigitsOfLargeNumbersAndFindsConstantChannels) {
  const MemorySet set(100, {1, 1, 3});
  const ChannelMoments moments = MeasureChannels(set, RowLoader(), 2);
  EXPECT_EQ(moments.mean[0], 1e6 + 0.5);
  EXPECT_EQ(moments.stddev[0], 0.5);
  EXPECT_EQ(moments.mean[1], 7);
  EXPECT_EQ(moments.stddev[1], 1);
  EXPECT_THAT(moments.constant, ElementsAre(1));
}

TEST(MeasureTest, TakesSamplesOfAllOfALargeSet) {
  const MemorySet set(100'000, {1, 1, 1});
  const RowLoader loader;
  const ChannelMoments moments = MeasureChannels(set, loader, 2);
  EXPECT_EQ(moments.samples, kMostMeasured);
  EXPECT_NEAR(moments.mean[2], 50'000, 50);
  EXPECT_GT(loader.last, 99'900);
}

TEST(MeasureTest, ASampleThatCannotBeReadEndsIt) {
  const MemorySet set(100, {1, 1, 1});
  RowLoader loader;
  loader.broken = 61;
  EXPECT_THROW((void)MeasureChannels(set, loader, 3), Error);
}

class MeasureNormalizationTest : public ::testing::Test {
 protected:
  MeasureNormalizationTest() {
    for (const char* set : {"train", "val"}) {
      for (const char* name : {"cat", "dog"}) {
        std::filesystem::create_directories(dir_.path() / set / name);
        PngSpec png{.height = 4, .width = 4};
        for (int i = 0; i < 16; ++i) {
          const bool is_cat = name == std::string("cat");
          png.samples.insert(png.samples.end(), {0, 51, static_cast<uint16_t>(is_cat ? 0 : 255)});
        }
        const Bytes file = EncodePng(png);
        WriteBytes(dir_.path() / set / name / "1.png", {file.begin(), file.end()});
      }
    }
    config::Data& data = *config_.mutable_data();
    data.set_format(config::Data::IMAGE_FOLDER);
    data.set_dir(dir_.string());
    for (const char* name : {"cat", "dog"}) data.add_class_names(name);
    data.mutable_preprocess()->set_crop_height(2);
    data.mutable_preprocess()->set_crop_width(2);
    data.mutable_preprocess()->set_measure_mean_stddev(true);
  }
  const TempDir dir_;
  config::Config config_;
};

TEST_F(MeasureNormalizationTest, TheConfigGetsTheNumbersAndIsMeasuredOnce) {
  const auto lines = MeasureNormalization(config_);
  const config::Preprocess& preprocess = config_.data().preprocess();
  EXPECT_FALSE(preprocess.measure_mean_stddev());
  EXPECT_THAT(preprocess.mean(), ElementsAre(0, DoubleNear(0.2, 1e-7), 0.5));
  EXPECT_THAT(preprocess.stddev(), ElementsAre(1, 1, 0.5));
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[0], "Measured on 2 training samples: mean 0, 0.2, 0.5; stddev 1, 1, 0.5");
  EXPECT_THAT(lines[1], HasSubstr("Warning: 2 of 3 channels"));
  EXPECT_THAT(MeasureNormalization(config_), IsEmpty());
}

TEST_F(MeasureNormalizationTest, WhatIsGivenOrHasNoEffectIsNotMeasured) {
  config_.mutable_data()->mutable_preprocess()->add_stddev(0.5);
  EXPECT_THAT(MeasureNormalization(config_), IsEmpty());
  config_.mutable_data()->mutable_preprocess()->clear_stddev();
  config_.mutable_data()->set_format(config::Data::SYNTHETIC);
  EXPECT_THAT(MeasureNormalization(config_), IsEmpty());
}

TEST_F(MeasureNormalizationTest, MissingDataSayWhatToDo) {
  std::filesystem::remove_all(dir_.path() / "train");
  try {
    (void)MeasureNormalization(config_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    EXPECT_THAT(error.what(), HasSubstr("give data.preprocess.mean and stddev instead"));
  }
}

}  // namespace
}  // namespace muster::testing
