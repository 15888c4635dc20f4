// The sample images of an evaluation are spread over the set, each in its block.
#include "worker/trainer/sample_images.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/config/config.h"
#include "common/config/data_format.h"

namespace muster::testing {
namespace {

std::vector<int64_t> IndexesOf(const Dataset& set, int64_t images, int64_t block_size) {
  std::vector<int64_t> indexes;
  for (int64_t begin = 0; begin < set.size(); begin += block_size) {
    std::vector<int32_t> predictions;
    for (int64_t i = begin; i < std::min(set.size(), begin + block_size); ++i) {
      predictions.push_back(static_cast<int32_t>(i % 3));
    }
    wire::EvaluatedBlock block;
    block.set_block(static_cast<uint32_t>(begin / block_size));
    AddSampleImages(set, images, block_size, predictions, block);
    for (const wire::SampleImage& image : block.image()) {
      EXPECT_EQ(image.predicted(), static_cast<uint32_t>(image.index() % 3));
      EXPECT_EQ(image.label(), static_cast<uint32_t>(set.Label(image.index())));
      EXPECT_EQ(static_cast<int64_t>(image.pixels().size()), set.shape().elements());
      indexes.push_back(image.index());
    }
  }
  return indexes;
}

// A set of 10 samples.
Datasets Made(uint32_t side) {
  config::Data data;
  data.set_format(config::Data::SYNTHETIC);
  data.mutable_synthetic()->set_height(side);
  data.mutable_synthetic()->set_width(side);
  data.mutable_synthetic()->set_classes(3);
  data.mutable_synthetic()->set_train_samples(1);
  data.mutable_synthetic()->set_test_samples(10);
  return OpenDatasets(data, 1);
}

TEST(SampleImages, AreSpreadOverTheSet) {
  const Datasets sets = Made(8);
  for (const int64_t block_size : {3, 4, 10}) {
    EXPECT_THAT(IndexesOf(*sets.test, 4, block_size), ::testing::ElementsAre(0, 2, 5, 7));
    EXPECT_THAT(IndexesOf(*sets.test, 1, block_size), ::testing::ElementsAre(0));
    EXPECT_EQ(IndexesOf(*sets.test, 64, block_size).size(), 10u) << "each once";
  }
}

// One image of this size fits into a message.
TEST(SampleImages, LargeOnesAreFewerButStillSpread) {
  const Datasets sets = Made(512);
  EXPECT_THAT(IndexesOf(*sets.test, 4, 10), ::testing::ElementsAre(0));
  EXPECT_THAT(IndexesOf(*sets.test, 4, 5), ::testing::ElementsAre(0, 5));
  EXPECT_THAT(IndexesOf(*sets.test, 4, 3), ::testing::ElementsAre(0, 3, 6));
}

}  // namespace
}  // namespace muster::testing
