#include "worker/data/validation_split.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "proto/config.pb.h"
#include "tests/data/expect_error.h"
#include "tests/data/test_sets.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using testing::MemorySet;

constexpr Shape kShape{2, 2, 1};
constexpr double kFraction = 0.2;

// The held-out samples of a set of this size.
std::vector<int64_t> HeldBackOf(int64_t size, uint64_t seed) {
  const auto all = std::make_shared<MemorySet>(size, Shape{1, 1, 1});
  Datasets sets{.train = all, .test = nullptr};
  HoldBack(kFraction, seed, sets);
  EXPECT_EQ(SizeOf(sets.train) + SizeOf(sets.validation), size);
  std::vector<int64_t> read, held_back;
  all->on_read = [&](int64_t index) { read.push_back(index); };
  std::vector<uint8_t> buffer;
  for (int64_t i = 0; i < sets.validation->size(); ++i) (void)sets.validation->Planes(i, buffer);
  held_back.swap(read);
  EXPECT_TRUE(std::ranges::is_sorted(held_back));
  return held_back;
}

TEST(HoldBack, TakesAboutThatShare) {
  for (const uint64_t seed : {1, 2, 3}) {
    EXPECT_NEAR(static_cast<double>(HeldBackOf(10'000, seed).size()), 2'000, 200);
  }
  EXPECT_NE(HeldBackOf(100, 1), HeldBackOf(100, 2));
}

TEST(HoldBack, MoreSamplesMoveNoOther) {
  const std::vector<int64_t> few = HeldBackOf(100, 1), many = HeldBackOf(300, 1);
  const auto added = std::ranges::find_if(many, [](int64_t sample) { return sample >= 100; });
  EXPECT_EQ(std::vector(many.begin(), added), few);
}

TEST(HoldBack, ASampleIsInOneOfTheParts) {
  const auto all = std::make_shared<MemorySet>(50, kShape);
  Datasets sets{.train = all, .test = nullptr};
  HoldBack(kFraction, 1, sets);
  int64_t train = 0, validation = 0;
  std::vector<uint8_t> buffer, ours;
  for (int64_t i = 0; i < all->size(); ++i) {
    const bool held = IsHeldBack(std::to_string(i), kFraction, 1);
    const Dataset& part = held ? *sets.validation : *sets.train;
    const int64_t place = held ? validation++ : train++;
    EXPECT_EQ(part.Label(place), all->Label(i));
    EXPECT_TRUE(std::ranges::equal(part.Planes(place, ours), all->Planes(i, buffer)));
  }
  EXPECT_EQ(sets.train->size(), train);
  EXPECT_EQ(sets.validation->size(), validation);
  EXPECT_EQ(sets.train->shape(), kShape);
  EXPECT_EQ(sets.train->classes(), all->classes());
}

TEST(HoldBack, TheFingerprintsFollowTheParts) {
  const auto fingerprints = [](uint64_t seed) {
    Datasets sets{.train = std::make_shared<MemorySet>(50, kShape), .test = nullptr};
    HoldBack(kFraction, seed, sets);
    return std::pair(sets.train->Fingerprint(), sets.validation->Fingerprint());
  };
  EXPECT_EQ(fingerprints(1), fingerprints(1));
  EXPECT_NE(fingerprints(1).first, fingerprints(2).first);
  EXPECT_NE(fingerprints(1).first, fingerprints(1).second);
}

// Each image is the sample's number.
class Numbers final : public Dataset {
 public:
  int64_t size() const override { return 50; }
  Shape shape() const override { return {1, 1, 1}; }
  int64_t classes() const override { return 10; }
  int32_t Label(int64_t index) const override { return static_cast<int32_t>(index % 10); }
  std::span<const uint8_t> Planes(int64_t, std::vector<uint8_t>&) const override { return {}; }
  bool stores_planes() const override { return false; }
  std::unique_ptr<SampleLoader> MakeLoader(const config::Data&) const override {
    return std::make_unique<Loader>();
  }
  size_t bytes() const override { return 0; }
  uint64_t Fingerprint() const override { return 1; }

 private:
  class Loader final : public SampleLoader {
   public:
    Shape shape() const override { return {1, 1, 1}; }
    std::unique_ptr<LoaderScratch> MakeScratch() const override {
      return std::make_unique<LoaderScratch>();
    }
    void Train(int64_t sample, uint64_t, int64_t, LoaderScratch&,
               ImageTarget image) const override {
      *std::get<float*>(image) = static_cast<float>(sample);
    }
    void Evaluate(int64_t sample, LoaderScratch&, ImageTarget image) const override {
      *std::get<float*>(image) = static_cast<float>(sample);
    }
  };
};

TEST(HoldBack, DividesASetThatMakesItsOwnLoader) {
  Datasets sets{.train = std::make_shared<Numbers>(), .test = nullptr};
  HoldBack(kFraction, 1, sets);
  std::vector<float> seen;
  for (const auto& part : {sets.train, sets.validation}) {
    const auto loader = part->MakeLoader({});
    const auto scratch = loader->MakeScratch();
    for (int64_t i = 0; i < part->size(); ++i) {
      float trained = -1;
      loader->Train(i, 1, 0, *scratch, &trained);
      loader->Evaluate(i, *scratch, &seen.emplace_back());
      EXPECT_EQ(trained, seen.back());
      EXPECT_EQ(part->Label(i), static_cast<int>(trained) % 10);
    }
  }
  std::ranges::sort(seen);
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<float>(i));
}

TEST(HoldBack, NoPartMayBeEmpty) {
  for (const double fraction : {1e-9, 1 - 1e-9}) {
    Datasets sets{.train = std::make_shared<MemorySet>(20, kShape), .test = nullptr};
    EXPECT_MUSTER_ERROR(HoldBack(fraction, 1, sets), ExitCode::kData,
                        HasSubstr("data.validation_fraction="));
  }
}

TEST(HoldBack, ComesWithEveryFormat) {
  const testing::TempDir dir;
  testing::WriteCifar10(dir.path(), 20);
  config::Data cifar10;
  cifar10.set_format(config::Data::CIFAR10);
  cifar10.set_dir(dir.string());
  config::Data synthetic;
  synthetic.set_format(config::Data::SYNTHETIC);
  synthetic.mutable_synthetic()->set_train_samples(100);
  for (config::Data* data : {&cifar10, &synthetic}) {
    EXPECT_EQ(OpenDatasets(*data, 1).validation, nullptr);
    const int64_t test = OpenDatasets(*data, 1).test->size();
    data->set_validation_fraction(kFraction);
    const Datasets sets = OpenDatasets(*data, 1);
    EXPECT_EQ(sets.train->size() + SizeOf(sets.validation), 100);
    EXPECT_GT(SizeOf(sets.validation), 0);
    EXPECT_EQ(sets.test->size(), test);
    EXPECT_EQ(&EvaluatedSetOf(sets), sets.test.get());
  }
}

}  // namespace
}  // namespace muster
