// Synthetic images are the same everywhere and depend on the class.
#include "worker/data/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "common/config/config.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

config::SyntheticData Settings(uint32_t height, uint32_t width, uint32_t channels,
                               uint32_t classes = 10) {
  config::SyntheticData settings;
  settings.set_height(height);
  settings.set_width(width);
  settings.set_channels(channels);
  settings.set_classes(classes);
  settings.set_train_samples(100);
  settings.set_test_samples(40);
  return settings;
}

std::vector<uint8_t> Image(const Dataset& set, int64_t index) {
  std::vector<uint8_t> buffer;
  const auto planes = set.Planes(index, buffer);
  return {planes.begin(), planes.end()};
}

TEST(Synthetic, IsNormalizedByMeanAndStddev) {
  const Datasets sets = MakeSynthetic(Settings(2, 2, 1), 1);
  config::Data data;
  data.mutable_preprocess()->add_mean(100);
  data.mutable_preprocess()->add_stddev(50);
  const auto loader = sets.train->MakeLoader(data);
  const auto scratch = loader->MakeScratch();
  std::vector<float> image(4);
  loader->Evaluate(7, *scratch, image.data());
  const std::vector<uint8_t> pixels = Image(*sets.train, 7);
  for (size_t i = 0; i < image.size(); ++i) {
    EXPECT_NEAR(image[i], (pixels[i] - 100.0) / 50, 1e-5) << i;
  }
}

TEST(Synthetic, HasTheShapesAndSizesAskedFor) {
  for (const auto& [height, width, channels] :
       {std::tuple{1u, 1u, 1u}, {1u, 1u, 7u}, {5u, 3u, 2u}, {33u, 17u, 3u}, {224u, 224u, 3u}}) {
    const Datasets sets = MakeSynthetic(Settings(height, width, channels), 1);
    EXPECT_EQ(sets.train->size(), 100);
    EXPECT_EQ(sets.test->size(), 40);
    EXPECT_EQ(sets.train->shape(), (Shape{height, width, channels}));
    EXPECT_EQ(Image(*sets.train, 99).size(), size_t{height} * width * channels);
  }
}

TEST(Synthetic, IsAPureFunctionOfSeedAndSample) {
  const Datasets a = MakeSynthetic(Settings(32, 32, 3), 7),
                 b = MakeSynthetic(Settings(32, 32, 3), 7);
  const Datasets other = MakeSynthetic(Settings(32, 32, 3), 8);
  const std::vector<uint8_t> fifth = Image(*a.train, 5);
  for (int64_t i = 40; i-- > 0;) {
    EXPECT_EQ(Image(*a.train, i), Image(*b.train, i));
    EXPECT_EQ(a.train->Label(i), b.train->Label(i));
  }
  // The previous contents of the buffer do not matter.
  std::vector<uint8_t> used(100000, 9);
  const auto again = b.train->Planes(5, used);
  EXPECT_EQ(std::vector<uint8_t>(again.begin(), again.end()), fifth);
  EXPECT_NE(Image(*other.train, 5), fifth);
  EXPECT_EQ(a.train->Fingerprint(), b.train->Fingerprint());
  EXPECT_NE(a.train->Fingerprint(), other.train->Fingerprint());
  EXPECT_NE(a.train->Fingerprint(), a.test->Fingerprint());
}

TEST(Synthetic, NoTwoImagesAreTheSame) {
  const Datasets sets = MakeSynthetic(Settings(16, 16, 1), 3);
  std::set<std::string> images;
  for (const auto& set : {sets.train.get(), sets.test.get()}) {
    for (int64_t i = 0; i < set->size(); ++i) {
      const std::vector<uint8_t> image = Image(*set, i);
      images.emplace(image.begin(), image.end());
    }
  }
  EXPECT_EQ(images.size(), 140u);
}

TEST(Synthetic, ClassesAreEquallyMany) {
  const Datasets sets = MakeSynthetic(Settings(8, 8, 1, 20), 3);
  std::map<int32_t, int> counts;
  for (int64_t i = 0; i < 100; ++i) ++counts[sets.train->Label(i)];
  EXPECT_EQ(counts.size(), 20u);
  for (const auto& [label, count] : counts) EXPECT_EQ(count, 5) << label;
}

// The correlation of an image with itself shifted by `down` and `right` pixels, per pixel and
// channel.
double Correlation(const std::vector<uint8_t>& a, int64_t side, int64_t down, int64_t right) {
  double sum = 0, mean = 0, squares = 0;
  int64_t n = 0;
  for (const uint8_t x : a) mean += x;
  mean /= static_cast<double>(a.size());
  for (const uint8_t x : a) squares += (x - mean) * (x - mean);
  for (int64_t y = 0; y + down < side; ++y) {
    for (int64_t x = 0; x + right < side; ++x, ++n) {
      sum += (a[y * side + x] - mean) * (a[(y + down) * side + x + right] - mean);
    }
  }
  return sum / static_cast<double>(n) / (squares / static_cast<double>(a.size()));
}

TEST(Synthetic, TheTextureOfTheClassIsUnderTheNoise) {
  const Datasets sets = MakeSynthetic(Settings(64, 64, 1), 5);
  for (int64_t i = 0; i < 20; ++i) {
    const std::vector<uint8_t> image = Image(*sets.train, i);
    // It repeats after 8 pixels. The noise (variance 48²/3 = 768 of about 2,100) does not.
    EXPECT_GT(Correlation(image, 64, 8, 0), 0.35);
    EXPECT_GT(Correlation(image, 64, 0, 8), 0.35);
    EXPECT_LT(Correlation(image, 64, 0, 8), 0.9);
  }
}

// Classifies test images by the nearest class mean over all phases. The means are sums of training
// images over the 64 positions of the tile, each shifted to match best.
TEST(Synthetic, TrainingImagesTellTheClassOfTestImages) {
  constexpr int64_t kSide = 32, kTile = 8;
  const Datasets sets = MakeSynthetic(Settings(kSide, kSide, 1), 6);
  using Tile = std::vector<double>;
  const auto fold = [&](const std::vector<uint8_t>& image) {
    Tile tile(kTile * kTile);
    for (int64_t y = 0; y < kSide; ++y) {
      for (int64_t x = 0; x < kSide; ++x) {
        tile[y % kTile * kTile + x % kTile] += image[y * kSide + x] * (kTile * kTile) / 1024.0;
      }
    }
    return tile;
  };
  const auto distance = [&](const Tile& a, const Tile& b) {  // for the best shift
    double best = 1e300;
    for (int64_t dy = 0; dy < kTile; ++dy) {
      for (int64_t dx = 0; dx < kTile; ++dx) {
        double sum = 0;
        for (int64_t y = 0; y < kTile; ++y) {
          for (int64_t x = 0; x < kTile; ++x) {
            sum += std::pow(a[y * kTile + x] - b[(y + dy) % kTile * kTile + (x + dx) % kTile], 2);
          }
        }
        best = std::min(best, sum);
      }
    }
    return best;
  };
  std::vector<Tile> known;
  for (int64_t i = 0; i < 10; ++i) known.push_back(fold(Image(*sets.train, i)));
  int correct = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const Tile tile = fold(Image(*sets.test, i));
    const auto nearest = std::min_element(
        known.begin(), known.end(),
        [&](const Tile& a, const Tile& b) { return distance(a, tile) < distance(b, tile); });
    correct += nearest - known.begin() == sets.test->Label(i);
  }
  EXPECT_EQ(correct, 40);
}

TEST(Synthetic, IsReachedThroughTheConfigWithoutADirectory) {
  config::Data data;
  data.set_format(config::Data::SYNTHETIC);
  *data.mutable_synthetic() = Settings(12, 14, 3, 5);
  EXPECT_EQ(StoredShape(data), (Shape{12, 14, 3}));
  EXPECT_EQ(DataClasses(data), 5);
  EXPECT_FALSE(NeedsFiles(data));
  EXPECT_EQ(OpenDatasets(data, 1).train->shape(), StoredShape(data));
  data.mutable_synthetic()->set_test_samples(0);
  EXPECT_EQ(OpenDatasets(data, 1).test->size(), 0);
}

}  // namespace
}  // namespace muster
