// Compares preprocessing with naive loops that follow the description in proto/config.proto.
#include "worker/data/preprocess.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "common/base/random.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "tests/data/expect_error.h"
#include "tests/data/preprocess_cases.h"
#include "tests/data/test_sets.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSeed = 42;
const Shape kStored{32, 32, 3};

// Walks `at` steps from 0 and turns at both ends.
int64_t Mirrored(int64_t at, int64_t size) {
  int64_t place = 0, step = 1;
  for (int64_t i = 0; i < std::abs(at) && size > 1; ++i) {
    if (place + step < 0 || place + step == size) step = -step;
    place += step;
  }
  return place;
}

// The oracle: each step on a whole image of doubles, in the order of the config's fields.
std::vector<double> Naive(const config::Preprocess& settings, std::span<const uint8_t> planes,
                          const Shape& stored, const Shape& crop, const Augmentation& choices) {
  const auto at = [&](int64_t row, int64_t column, int64_t channel) {
    return static_cast<size_t>((row * crop.width + column) * crop.channels + channel);
  };
  std::vector<double> image(static_cast<size_t>(crop.elements()));
  for (int64_t row = 0; row < crop.height; ++row) {
    for (int64_t column = 0; column < crop.width; ++column) {
      for (int64_t channel = 0; channel < crop.channels; ++channel) {
        int64_t y = choices.top + row, x = choices.left + column;
        if (settings.padding() == config::Preprocess::REFLECT) {
          y = Mirrored(y, stored.height);
          x = Mirrored(x, stored.width);
        }
        const bool inside = 0 <= y && y < stored.height && 0 <= x && x < stored.width;
        const int64_t target = choices.flip ? crop.width - 1 - column : column;
        image[at(row, target, channel)] =
            inside ? planes[static_cast<size_t>((channel * stored.height + y) * stored.width + x)]
                   : 0;
      }
    }
  }
  for (double& value : image) value += choices.brightness;
  for (int64_t channel = 0; channel < crop.channels; ++channel) {
    double mean = 0;
    for (int64_t i = 0; i < crop.height * crop.width; ++i)
      mean += image[i * crop.channels + channel];
    mean /= static_cast<double>(crop.height * crop.width);
    for (int64_t i = 0; i < crop.height * crop.width; ++i) {
      double& value = image[i * crop.channels + channel];
      value = (value - mean) * choices.contrast + mean;
    }
  }
  if (!settings.standardize()) {
    for (double& value : image) value /= 255;
    return image;
  }
  const auto n = static_cast<double>(image.size());
  double mean = 0, variance = 0;
  for (double value : image) mean += value / n;
  for (double value : image) variance += (value - mean) * (value - mean) / n;
  const double divisor = std::max(std::sqrt(variance), 1 / std::sqrt(n));
  for (double& value : image) value = (value - mean) / divisor;
  return image;
}

config::Preprocess Everything() { return testing::AllPreprocessing(24); }

std::vector<float> Apply(const config::Preprocess& settings, const Dataset& set, int64_t index,
                         const Augmentation& choices) {
  const Preprocessor preprocessor(settings, set.shape());
  std::vector<float> image(static_cast<size_t>(preprocessor.shape().elements()));
  preprocessor.Apply(testing::PlanesOf(set, index), choices, image.data());
  return image;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 2e-6 * (1 + std::abs(expected[i]))) << "element " << i;
  }
}

TEST(Preprocess, AgreesWithTheNaiveLoops) {
  for (const Shape& stored : testing::kPreprocessedShapes) {
    const testing::MemorySet set(20, stored);
    const std::vector<config::Preprocess> variants = testing::PreprocessVariants(stored);
    for (size_t variant = 0; variant < variants.size(); ++variant) {
      const config::Preprocess& settings = variants[variant];
      const Preprocessor preprocessor(settings, stored);
      for (int64_t sample = 0; sample < set.size(); ++sample) {
        for (const Augmentation& choices :
             {preprocessor.Draw(kSeed, 3, sample), preprocessor.Centre()}) {
          SCOPED_TRACE(
              fmt::format("stored {} variant {} sample {}", stored.ToString(), variant, sample));
          ExpectNear(Apply(settings, set, sample, choices),
                     Naive(settings, testing::PlanesOf(set, sample), stored, preprocessor.shape(),
                           choices));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Preprocess, WithoutSettingsPixelsAreDividedBy255) {
  const testing::MemorySet set(1, kStored);
  const auto image = Apply({}, set, 0, Preprocessor({}, kStored).Draw(kSeed, 0, 0));
  for (size_t pixel = 0; pixel < 32 * 32; ++pixel) {
    for (size_t channel = 0; channel < 3; ++channel) {
      ASSERT_FLOAT_EQ(image[pixel * 3 + channel],
                      testing::PlanesOf(set, 0)[channel * 1024 + pixel] / 255.0f);
    }
  }
}

TEST(Preprocess, StandardizedImagesHaveMeanZeroAndDeviationOne) {
  const testing::MemorySet set(10, kStored);
  const Preprocessor preprocessor(Everything(), kStored);
  for (int64_t sample = 0; sample < 10; ++sample) {
    const auto image = Apply(Everything(), set, sample, preprocessor.Draw(kSeed, 0, sample));
    double sum = 0, squares = 0;
    for (float value : image) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    EXPECT_NEAR(sum / 1728, 0, 1e-6);
    EXPECT_NEAR(squares / 1728, 1, 1e-5);
  }
}

TEST(Preprocess, AnImageOfOneColourStandardizesToZero) {
  config::Preprocess settings;
  settings.set_standardize(true);
  const std::vector<uint8_t> planes(3072, 200);
  std::vector<float> image(3072, 1);
  Preprocessor(settings, kStored).Apply(planes, {}, image.data());
  for (float value : image) ASSERT_EQ(value, 0);
}

TEST(Preprocess, TheFloorOfTheDeviationIsOneOverRootN) {
  config::Preprocess settings;
  settings.set_standardize(true);
  std::vector<uint8_t> planes(3072, 100);
  planes[0] = 101;  // the stddev is √(1/3072 - 1/3072²), just below 1/√3072
  std::vector<float> image(3072);
  Preprocessor(settings, kStored).Apply(planes, {}, image.data());
  EXPECT_NEAR(image[0], (1 - 1.0 / 3072) * std::sqrt(3072.0), 1e-4);
}

TEST(Preprocess, BrightnessAddsAndContrastScalesAroundTheChannelsMean) {
  const Shape stored{1, 2, 2};
  const std::vector<uint8_t> planes = {10, 30, 100, 200};  // means 20 and 150
  std::vector<float> image(4);
  const Preprocessor preprocessor({}, stored);
  preprocessor.Apply(planes, {.brightness = 5, .contrast = 0.5f}, image.data());
  EXPECT_FLOAT_EQ(image[0], 20 / 255.0f);   // (15 - 25) / 2 + 25
  EXPECT_FLOAT_EQ(image[1], 130 / 255.0f);  // (105 - 155) / 2 + 155
  EXPECT_FLOAT_EQ(image[2], 30 / 255.0f);
  EXPECT_FLOAT_EQ(image[3], 180 / 255.0f);
  preprocessor.Apply(planes, {.contrast = 0}, image.data());
  EXPECT_FLOAT_EQ(image[0], 20 / 255.0f);
  EXPECT_FLOAT_EQ(image[2], 20 / 255.0f);
  EXPECT_FLOAT_EQ(image[3], 150 / 255.0f);
}

// torch.nn.functional.pad(torch.arange(6.0).reshape(1, 2, 3), (2, 2, 1, 1), mode="reflect"), and a
// crop of it.
TEST(Preprocess, ReflectsAsPyTorchDoes) {
  const Shape stored{2, 3, 1};
  const std::vector<uint8_t> planes = {0, 51, 102, 153, 204, 255};  // 0, 1, … 5 times 255 / 5
  config::Preprocess settings;
  settings.set_padding(config::Preprocess::REFLECT);
  std::vector<float> image(6);
  const auto crop = [&](int64_t top, int64_t left) {
    Preprocessor(settings, stored).Apply(planes, {.top = top, .left = left}, image.data());
    for (float& value : image) value = std::round(value * 5);
    return image;
  };
  EXPECT_EQ(crop(-1, -2), (std::vector<float>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(crop(0, -1), (std::vector<float>{1, 0, 1, 4, 3, 4}));
  EXPECT_EQ(crop(1, 2), (std::vector<float>{5, 4, 3, 2, 1, 0}));
}

TEST(Preprocess, GivesTheShapeThatTheNetworkExpects) {
  config::Data data;
  data.set_format(config::Data::CIFAR10);
  EXPECT_EQ(Preprocessor(data.preprocess(), StoredShape(data)).shape(), InputShape(data));
  data.mutable_preprocess()->set_crop_height(24);
  data.mutable_preprocess()->set_crop_width(20);
  EXPECT_EQ(Preprocessor(data.preprocess(), StoredShape(data)).shape(), InputShape(data));
}

TEST(Preprocess, RefusesSettingsThatDoNotFit) {
  config::Preprocess large;
  large.set_crop_width(33);
  EXPECT_MUSTER_ERROR(Preprocessor(large, kStored), ExitCode::kUsage,
                      AllOf(HasSubstr("crop_width"), HasSubstr("1 to 32"), HasSubstr("33")));
  config::Preprocess contrast;
  contrast.set_contrast_min(1.5f);
  EXPECT_MUSTER_ERROR(Preprocessor(contrast, kStored), ExitCode::kUsage,
                      AllOf(HasSubstr("contrast_min"), HasSubstr("1.5")));
}

TEST(Augmentation, EvaluationTakesTheCentreAndNothingElse) {
  EXPECT_EQ(CentreCrop(Everything(), kStored), (Augmentation{.top = 4, .left = 4}));
  config::Preprocess odd = Everything();
  odd.set_crop_width(27);
  EXPECT_EQ(CentreCrop(odd, kStored).left, 2);
  odd.set_crop_padding(4);  // only for training crops
  EXPECT_EQ(CentreCrop(odd, kStored).left, 2);
}

TEST(Augmentation, DrawsEveryPlaceAndStaysInRange) {
  config::Preprocess settings = Everything();
  settings.set_crop_height(30);
  settings.set_crop_padding(2);
  std::map<int64_t, int> tops, lefts;
  int flips = 0;
  double brightness = 0, contrast = 0;
  constexpr int kSamples = 20000;
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    const Augmentation drawn = DrawAugmentation(settings, kStored, kSeed, 0, sample);
    ++tops[drawn.top];
    ++lefts[drawn.left];
    flips += drawn.flip;
    ASSERT_GE(drawn.brightness, -63);
    ASSERT_LT(drawn.brightness, 63);
    ASSERT_GE(drawn.contrast, 0.2f);
    ASSERT_LT(drawn.contrast, 1.8f);
    brightness += drawn.brightness / kSamples;
    contrast += drawn.contrast / kSamples;
  }
  // 32 + 2·2 - 30 + 1 rows and 32 + 2·2 - 24 + 1 columns, equally often.
  EXPECT_EQ(tops.size(), 7u);
  EXPECT_EQ(tops.begin()->first, -2);
  EXPECT_EQ(lefts.size(), 13u);
  EXPECT_EQ(lefts.begin()->first, -2);
  for (const auto& [top, count] : tops) EXPECT_NEAR(count, kSamples / 7.0, 300) << top;
  for (const auto& [left, count] : lefts) EXPECT_NEAR(count, kSamples / 13.0, 220) << left;
  EXPECT_NEAR(flips, kSamples / 2.0, 350);  // five standard deviations
  EXPECT_NEAR(brightness, 0, 1.3);
  EXPECT_NEAR(contrast, 1, 0.017);
}

TEST(Augmentation, IsAFunctionOfSeedEpochAndSample) {
  const config::Preprocess settings = Everything();
  const Augmentation one = DrawAugmentation(settings, kStored, 1, 2, 3);
  EXPECT_EQ(one, DrawAugmentation(settings, kStored, 1, 2, 3));
  EXPECT_NE(one, DrawAugmentation(settings, kStored, 2, 2, 3));
  EXPECT_NE(one, DrawAugmentation(settings, kStored, 1, 3, 3));
  EXPECT_NE(one, DrawAugmentation(settings, kStored, 1, 2, 4));
}

TEST(Augmentation, AlternateFlipShowsBothSidesInTurn) {
  config::Preprocess settings = Everything();
  config::Preprocess random = settings;
  settings.set_alternate_flip(true);
  for (int64_t sample = 0; sample < 100; ++sample) {
    Augmentation expected = DrawAugmentation(random, kStored, kSeed, 0, sample);
    const bool first = expected.flip;
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      expected = DrawAugmentation(random, kStored, kSeed, epoch, sample);
      expected.flip = first != (epoch % 2 == 1);
      EXPECT_EQ(DrawAugmentation(settings, kStored, kSeed, epoch, sample), expected);
    }
  }
}

TEST(Augmentation, EachChoiceHasItsOwnRandomNumber) {
  const config::Preprocess all = Everything();
  config::Preprocess fewer = all;
  fewer.set_flip(false);
  fewer.set_brightness(0);
  for (int64_t sample = 0; sample < 100; ++sample) {
    Augmentation expected = DrawAugmentation(all, kStored, kSeed, 0, sample);
    expected.flip = false;
    expected.brightness = 0;
    EXPECT_EQ(DrawAugmentation(fewer, kStored, kSeed, 0, sample), expected);
  }
  const RandomStream stream(kSeed, RandomPurpose::kAugment, 0, 5, 77);
  const Augmentation drawn = DrawAugmentation(all, kStored, kSeed, 5, 77);
  EXPECT_EQ(drawn.top, static_cast<int64_t>(uint64_t{stream.Block(0)[0]} * 9 >> 32));
  EXPECT_EQ(drawn.left, static_cast<int64_t>(uint64_t{stream.Block(0)[1]} * 9 >> 32));
  EXPECT_EQ(drawn.flip, stream.Block(0)[2] >= 0x80000000u);
  EXPECT_FLOAT_EQ(drawn.brightness, 126 * ToUniform(stream.Block(0)[3]) - 63);
  EXPECT_FLOAT_EQ(drawn.contrast, 0.2f + 1.6f * ToUniform(stream.Block(1)[0]));
}

}  // namespace
}  // namespace muster
