// The order of samples and batches, and the threads that prepare them.
#include "worker/data/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "tests/data/expect_error.h"
#include "tests/data/test_sets.h"
#include "worker/data/preprocess.h"

namespace muster {
namespace pipeline_test {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MemorySet;
using testing::PlanesOf;

constexpr double kDeadline = 20;

TEST(EpochOrder, IsAPermutation) {
  for (int64_t size : {0, 1, 2, 3, 10, 1000, 50000}) {
    std::vector<int64_t> order = EpochOrder(size, 7, 3);
    EXPECT_EQ(order, EpochOrder(size, 7, 3));
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
}

TEST(EpochOrder, DependsOnSeedAndEpoch) {
  EXPECT_NE(EpochOrder(100, 1, 0), EpochOrder(100, 2, 0));
  EXPECT_NE(EpochOrder(100, 1, 0), EpochOrder(100, 1, 1));
}

TEST(EpochOrder, EveryPermutationIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  constexpr int kEpochs = 24000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) ++counts[EpochOrder(4, 1, epoch)];
  EXPECT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [order, count] : counts)
    chi_squared += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom, one in a thousand
}

// A copy of a batch.
struct Kept {
  int64_t step, index, epoch;
  std::vector<float> images;
  std::vector<int32_t> labels;
  std::vector<int64_t> sample_ids;
  bool operator==(const Kept&) const = default;
};

Kept Keep(const PreparedBatch& batch, const Shape& shape) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.images) % 64, 0u);
  return {batch.step,
          batch.index,
          batch.epoch,
          {batch.images, batch.images + batch.count * shape.elements()},
          {batch.labels, batch.labels + batch.count},
          {batch.sample_ids, batch.sample_ids + batch.count}};
}

class TrainPipeline : public ::testing::Test {
 protected:
  static constexpr int64_t kSamples = 23;

  TrainPipeline() : set_(kSamples, {8, 6, 3}) {
    options_.plan = {.train_samples = kSamples, .global_batch = 10, .total_steps = 8, .slices = 3};
    options_.slices = {{0, 3}};
    options_.seed = 5;
    auto* preprocess = options_.data.mutable_preprocess();
    preprocess->set_crop_height(5);
    preprocess->set_crop_width(4);
    preprocess->set_crop_padding(1);
    preprocess->set_flip(true);
    preprocess->set_brightness(30);
    preprocess->set_contrast_min(0.5f);
    preprocess->set_standardize(true);
  }

  static std::vector<int64_t> SlicesOf(const TrainPipelineOptions& options) {
    std::vector<int64_t> slices;
    for (const Range& range : options.slices) {
      for (int64_t slice = range.begin; slice < range.end; ++slice) slices.push_back(slice);
    }
    return slices;
  }
  std::vector<Kept> All(const TrainPipelineOptions& options) const {
    const auto pipeline = MakeTrainPipeline(set_, options);
    std::vector<Kept> batches;
    const int64_t count = (options.plan.total_steps - options.first_step) *
                          static_cast<int64_t>(SlicesOf(options).size());
    for (int64_t i = 0; i < count; ++i) batches.push_back(Keep(pipeline->Next(kDeadline), kCrop));
    return batches;
  }

  // The expected batches, made without pipeline or threads.
  std::vector<Kept> Expected(const TrainPipelineOptions& options) const {
    const Preprocessor preprocessor(options.data.preprocess(), set_.shape());
    std::vector<Kept> batches;
    for (int64_t step = options.first_step; step < options.plan.total_steps; ++step) {
      const Batch batch = options.plan.At(step);
      const auto order = EpochOrder(kSamples, options.seed, batch.epoch);
      for (const int64_t slice : SlicesOf(options)) {
        Kept kept{step, slice, batch.epoch, {}, {}, {}};
        const Range places = options.plan.Slice(batch, slice);
        for (int64_t place = places.begin; place < places.end; ++place) {
          const int64_t sample = order[static_cast<size_t>(place)];
          std::vector<float> image(static_cast<size_t>(kCrop.elements()));
          preprocessor.Apply(PlanesOf(set_, sample),
                             preprocessor.Draw(options.seed, batch.epoch, sample), image.data());
          kept.images.insert(kept.images.end(), image.begin(), image.end());
          kept.labels.push_back(set_.Label(sample));
          kept.sample_ids.push_back(sample);
        }
        batches.push_back(std::move(kept));
      }
    }
    return batches;
  }

  static constexpr Shape kCrop{5, 4, 3};
  MemorySet set_;
  TrainPipelineOptions options_;
};

// Samples and labels are the same, but no image is read or stored.
TEST_F(TrainPipeline, SaysOnlyWhichSamplesWhereTheDeviceMakesTheImages) {
  const std::vector<Kept> all = All(options_);
  set_.on_read = [](int64_t) { ADD_FAILURE() << "an image was read"; };
  options_.images = ImagesBy::kDevice;
  const auto pipeline = MakeTrainPipeline(set_, options_);
  for (const Kept& expected : all) {
    const PreparedBatch& batch = pipeline->Next(kDeadline);
    EXPECT_EQ(batch.images, nullptr);
    EXPECT_EQ(std::vector(batch.labels, batch.labels + batch.count), expected.labels);
    EXPECT_EQ(std::vector(batch.sample_ids, batch.sample_ids + batch.count), expected.sample_ids);
    EXPECT_EQ(batch.epoch, expected.epoch);
  }
}

// A batch that was peeked at is the next one, and stays valid until then.
TEST_F(TrainPipeline, ShowsTheNextBatchWhenItIsReady) {
  const std::vector<Kept> all = All(options_);
  const auto pipeline = MakeTrainPipeline(set_, options_);
  const PreparedBatch* ahead = nullptr;
  for (size_t i = 0; i < all.size(); ++i) {
    const PreparedBatch& batch = pipeline->Next(kDeadline);
    EXPECT_TRUE(ahead == nullptr || ahead == &batch);
    EXPECT_EQ(Keep(batch, kCrop), all[i]);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do {
      std::this_thread::yield();
      ahead = pipeline->Peek();
    } while (ahead == nullptr && i + 1 < all.size() && std::chrono::steady_clock::now() < end);
    ASSERT_EQ(ahead == nullptr, i + 1 == all.size());
    EXPECT_EQ(Keep(batch, kCrop), all[i]);
  }
}

TEST_F(TrainPipeline, GivesTheSameBatchesWhateverTheThreads) {
  // 10, 10, 3 samples; 16 slices leave some empty and all uneven.
  for (int64_t slices : {1, 3, 16}) {
    options_.plan.slices = slices;
    options_.slices = {{0, slices}};
    const std::vector<Kept> expected = Expected(options_);
    for (uint32_t threads : {1, 2, 5}) {
      for (uint32_t depth : {1, 3, 200}) {
        SCOPED_TRACE(fmt::format("{} slices, {} threads, depth {}", slices, threads, depth));
        options_.data.set_prefetch_threads(threads);
        options_.data.set_prefetch_batches(depth);
        EXPECT_TRUE(All(options_) == expected);
      }
    }
  }
}

TEST_F(TrainPipeline, EverySampleComesOncePerEpoch) {
  std::map<int64_t, std::vector<int64_t>> by_epoch;
  options_.plan.total_steps = 6;
  for (const Kept& batch : All(options_)) {
    auto& ids = by_epoch[batch.epoch];
    ids.insert(ids.end(), batch.sample_ids.begin(), batch.sample_ids.end());
  }
  ASSERT_EQ(by_epoch.size(), 2u);
  EXPECT_EQ(by_epoch[0], EpochOrder(kSamples, 5, 0));
  EXPECT_EQ(by_epoch[1], EpochOrder(kSamples, 5, 1));
}

TEST_F(TrainPipeline, AWorkerGetsItsSlicesAndARestartItsSteps) {
  options_.plan.slices = 7;
  options_.slices = {{0, 7}};
  const std::vector<Kept> all = All(options_);
  options_.slices = {{2, 4}, {5, 6}};
  options_.first_step = 3;
  std::vector<Kept> expected;
  for (const Kept& batch : all) {
    const bool mine = batch.index == 2 || batch.index == 3 || batch.index == 5;
    if (batch.step >= 3 && mine) expected.push_back(batch);
  }
  EXPECT_TRUE(All(options_) == expected);
}

TEST_F(TrainPipeline, EmptySlicesAreHandedOver) {
  options_.plan.slices = 16;
  options_.slices = {{0, 1}};  // of 10 samples in 16 slices the first one has none
  for (const Kept& batch : All(options_)) EXPECT_TRUE(batch.sample_ids.empty());
}

TEST_F(TrainPipeline, ABatchStaysValidUntilTheNextCall) {
  options_.data.set_prefetch_threads(3);
  options_.data.set_prefetch_batches(2);
  const auto pipeline = MakeTrainPipeline(set_, options_);
  for (int i = 0; i < 10; ++i) {
    const PreparedBatch& batch = pipeline->Next(kDeadline);
    const Kept before = Keep(batch, kCrop);
    std::this_thread::sleep_for(milliseconds(5));  // by now the threads have filled everything else
    EXPECT_TRUE(Keep(batch, kCrop) == before);
  }
}

TEST_F(TrainPipeline, WithoutSlicesThereIsNothingToDo) {
  options_.slices = {{1, 1}};
  EXPECT_NE(MakeTrainPipeline(set_, options_), nullptr);
}

TEST_F(TrainPipeline, EndsWithThePlan) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto read_past_the_end = [&] {
    options_.first_step = options_.plan.total_steps;
    MakeTrainPipeline(set_, options_)->Next(kDeadline);
  };
  EXPECT_DEATH(read_past_the_end(), "broken invariant");
}

TEST_F(TrainPipeline, AnErrorIsThrownWhereTheBatchWouldHaveBeen) {
  options_.data.set_prefetch_threads(3);
  const std::vector<Kept> expected = Expected(options_);
  const int64_t bad = expected[4].sample_ids[1];  // in step 1, so unseen in this epoch
  for (const uint32_t depth : {1, 4}) {           // the threads share a batch, or have one each
    options_.data.set_prefetch_batches(depth);
    set_.on_read = [&](int64_t index) {
      if (index == bad) throw Error(ExitCode::kData, "sample {} is bad", index);
    };
    const auto pipeline = MakeTrainPipeline(set_, options_);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(Keep(pipeline->Next(kDeadline), kCrop) == expected[i]);
    for (int again = 0; again < 2; ++again) {
      EXPECT_MUSTER_ERROR(pipeline->Next(kDeadline), ExitCode::kData, HasSubstr("is bad"));
    }
  }
}

// A gate that blocks readers.
class Gate {
 public:
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST_F(TrainPipeline, TheDeadlineSaysWhatWasWaitedFor) {
  Gate gate;
  set_.on_read = [&](int64_t) { gate.Wait(); };
  options_.first_step = 2;
  options_.slices = {{1, 3}};
  const auto pipeline = MakeTrainPipeline(set_, options_);
  EXPECT_MUSTER_ERROR(
      pipeline->Next(0.05), ExitCode::kDeadline,
      AllOf(HasSubstr("0.05 s"), HasSubstr("step 2, slice 1"), HasSubstr("data.prefetch_threads")));
  gate.Open();
  EXPECT_EQ(pipeline->Next(kDeadline).step, 2);  // waiting longer is allowed
}

TEST_F(TrainPipeline, StopsAtOnceWhileItsThreadsWaitForRoom) {
  options_.data.set_prefetch_threads(4);
  auto pipeline = MakeTrainPipeline(set_, options_);
  pipeline->Next(kDeadline);
  std::this_thread::sleep_for(milliseconds(20));  // most of them are waiting by now
  pipeline.reset();                               // otherwise the test times out
}

TEST(Pipeline, StopsInTheMiddleOfABatch) {
  MemorySet set(5000, {2, 2, 1});
  std::atomic<int> reads = 0;
  set.on_read = [&](int64_t) {
    ++reads;
    std::this_thread::sleep_for(milliseconds(2));
  };
  TrainPipelineOptions options;
  options.plan = {.train_samples = 5000, .global_batch = 5000, .total_steps = 9, .slices = 1};
  options.slices = {{0, 1}};
  options.data.set_prefetch_threads(3);
  auto pipeline = MakeTrainPipeline(set, options);  // ten seconds for the first batch
  std::this_thread::sleep_for(milliseconds(20));
  pipeline.reset();
  EXPECT_LT(reads, 5000);
}

TEST(EvaluationPipeline, GivesTheCentreOfEverySampleInOrder) {
  const MemorySet set(23, {8, 6, 3});
  config::Data data;
  data.mutable_preprocess()->set_crop_height(5);
  data.mutable_preprocess()->set_crop_width(4);
  data.mutable_preprocess()->set_crop_padding(2);
  data.mutable_preprocess()->set_flip(true);
  data.mutable_preprocess()->set_brightness(100);
  data.mutable_preprocess()->set_standardize(true);
  data.set_prefetch_threads(3);
  const Preprocessor preprocessor(data.preprocess(), set.shape());
  const auto pipeline = MakeEvaluationPipeline(set, data, 5, {1, 5});
  for (int64_t block = 1; block < 5; ++block) {
    const PreparedBatch& batch = pipeline->Next(kDeadline);
    EXPECT_EQ(batch.index, block);
    ASSERT_EQ(batch.count, block == 4 ? 3 : 5);
    for (int64_t i = 0; i < batch.count; ++i) {
      const int64_t sample = block * 5 + i;
      EXPECT_EQ(batch.sample_ids[i], sample);
      EXPECT_EQ(batch.labels[i], set.Label(sample));
      std::vector<float> image(60);
      preprocessor.Apply(PlanesOf(set, sample), {.top = 1, .left = 1}, image.data());
      EXPECT_TRUE(std::equal(image.begin(), image.end(), batch.images + i * 60));
    }
  }
}

}  // namespace pipeline_test
}  // namespace muster
