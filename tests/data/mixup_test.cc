#include "worker/data/mixup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/data/test_sets.h"
#include "worker/data/pipeline.h"

namespace muster {
namespace {

constexpr double kDeadline = 20;

// b from Beta(a, a) has the variance 1 / (4 (2 a + 1)), and the share is max(b, 1 - b).
TEST(MixupShare, HasTheMomentsOfTheBetaDistribution) {
  for (const double alpha : {0.1, 0.2, 0.5, 1.0, 2.5, 100.0}) {
    constexpr int kDraws = 40000;
    double sum = 0, fourth = 0;
    for (int step = 0; step < kDraws; ++step) {
      const float share = MixupShare(alpha, 1, step, 3);
      EXPECT_GE(share, 0.5f);
      EXPECT_LE(share, 1.0f);
      const double square = std::pow(2.0 * share - 1, 2);
      sum += square;
      fourth += square * square;
    }
    const double expected = 1 / (2 * alpha + 1);
    const double of_fourth = 3 / ((2 * alpha + 1) * (2 * alpha + 3));
    EXPECT_NEAR(sum / kDraws, expected, 0.02 * expected) << alpha;
    EXPECT_NEAR(fourth / kDraws, of_fourth, 0.04 * of_fourth) << alpha;
  }
}

TEST(MixupShare, DependsOnNothingButItsArguments) {
  EXPECT_EQ(MixupShare(0.2, 5, 7, 1), MixupShare(0.2, 5, 7, 1));
  const std::set<float> different{MixupShare(0.5, 5, 7, 1), MixupShare(0.5, 6, 7, 1),
                                  MixupShare(0.5, 5, 8, 1), MixupShare(0.5, 5, 7, 2),
                                  MixupShare(0.4, 5, 7, 1)};
  EXPECT_EQ(different.size(), 5u);
}

// The same on all processors.
TEST(MixupShare, HasTheseBits) {
  EXPECT_EQ(MixupShare(0.2, 1, 0, 0), 0x1.ffdde6p-1f);
  EXPECT_EQ(MixupShare(1, 1, 2, 3), 0x1.8da9c2p-1f);
  EXPECT_EQ(MixupShare(0.7, 99, 100000, 12), 0x1.b370bcp-1f);
}

TEST(MixupShare, TakesExtremeSettings) {
  for (int step = 0; step < 100; ++step) {
    EXPECT_EQ(MixupShare(1e-9, 1, step, 0), 1.0f);
    EXPECT_EQ(MixupShare(1e-320, 1, step, 0), 1.0f);
  }
}

TEST(MixImages, MixesEachWithTheOneBefore) {
  std::vector<float> images{0, 4, 8, 12, 16, 20};
  MixImages(0.75f, 3, 2, images.data());
  EXPECT_EQ(images, (std::vector<float>{4, 8, 6, 10, 14, 18}));
  std::vector<float> one{4, 8};
  MixImages(0.75f, 1, 2, one.data());
  EXPECT_EQ(one, (std::vector<float>{4, 8}));
}

class MixedPipeline : public ::testing::Test {
 protected:
  MixedPipeline() : set_(23, {4, 3, 2}) {
    options_.plan = {.train_samples = 23, .global_batch = 10, .total_steps = 5, .slices = 3};
    options_.slices = {{0, 3}};
    options_.seed = 5;
    options_.data.mutable_preprocess()->set_flip(true);
  }
  std::unique_ptr<BatchPipeline> Make(double alpha, std::vector<Range> slices,
                                      int64_t first_step = 0) {
    TrainPipelineOptions options = options_;
    options.data.mutable_preprocess()->set_mixup_alpha(alpha);
    options.slices = std::move(slices);
    options.first_step = first_step;
    return MakeTrainPipeline(set_, options);
  }
  static std::vector<float> ImagesOf(const PreparedBatch& batch) {
    return {batch.images, batch.images + batch.count * 24};
  }

  const testing::MemorySet set_;
  TrainPipelineOptions options_;
};

TEST_F(MixedPipeline, MixesEachSliceByItsShare) {
  const auto plain = Make(0, {{0, 3}}), mixed = Make(0.5, {{0, 3}});
  for (int i = 0; i < 15; ++i) {
    const PreparedBatch &from = plain->Next(kDeadline), &to = mixed->Next(kDeadline);
    EXPECT_EQ(from.share, 1);
    // A single sample in its slice has no other to be mixed with.
    EXPECT_EQ(to.share, to.count > 1 ? MixupShare(0.5, 5, to.step, to.index) : 1);
    std::vector<float> expected = ImagesOf(from);
    MixImages(to.share, from.count, 24, expected.data());
    EXPECT_EQ(ImagesOf(to), expected);
    EXPECT_EQ(std::vector<int32_t>(to.labels, to.labels + to.count),
              std::vector<int32_t>(from.labels, from.labels + from.count));
  }
}

// Another worker, or a later one, makes the same batch.
TEST_F(MixedPipeline, ASliceIsTheSameWhoeverMakesIt) {
  const auto all = Make(0.5, {{0, 3}}), part = Make(0.5, {{1, 2}}, 3);
  for (int i = 0; i < 3 * 3 + 1; ++i) all->Next(kDeadline);
  const PreparedBatch &from = all->Next(kDeadline), &to = part->Next(kDeadline);
  EXPECT_EQ(to.step, from.step);
  EXPECT_EQ(to.index, from.index);
  EXPECT_EQ(to.share, from.share);
  EXPECT_EQ(ImagesOf(to), ImagesOf(from));
}

}  // namespace
}  // namespace muster
