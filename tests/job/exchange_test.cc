// Closed-form sums through a real server and real sockets: gradients are added in tree order,
// whichever worker pushes which slice, and in whatever order they arrive.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <thread>

#include "tests/job/test_job.h"
#include "tests/ps/tree_sum_reference.h"

namespace muster::testing {
namespace {

uint64_t HashAfter(uint32_t workers, uint32_t slices, const WorkerBehaviour& behaviour,
                   const std::function<void(config::Config&)>& change = {},
                   const std::string& transport = "ipc") {
  config::Config config = SmallConfig(workers, slices);
  if (change) change(config);
  TestJob job(config, transport);
  RunWorkers(job, behaviour);
  return job.Finish().weights_hash;
}

class Sums : public ::testing::TestWithParam<std::tuple<int, int, const char*>> {};

// Slice s pushes s + 1, so after one step every weight is exactly -(1 + … + S). Also with fewer
// samples than slices: empty slices add nothing.
TEST_P(Sums, AreThoseOfAllSlices) {
  const auto [slices, workers, transport] = GetParam();
  if (workers > slices) return;  // refused by the config; see config_test
  for (const int64_t batch : {int64_t{16}, int64_t{5}}) {
    config::Config config =
        SmallConfig(static_cast<uint32_t>(workers), static_cast<uint32_t>(slices));
    config.mutable_run()->set_global_batch(batch);
    config.mutable_run()->set_steps(2);
    TestJob job(config, transport);
    const std::vector<float> seen = RunWorkers(
        job,
        {.gradient = [](int64_t, int64_t slice, size_t) { return static_cast<float>(slice + 1); }});
    float expected = 0;
    for (int64_t s = 0; s < slices; ++s) {
      if (!EvenPart(batch, slices, s).empty()) expected -= static_cast<float>(s + 1);
    }
    for (const float w : seen) ASSERT_EQ(w, expected) << "batch " << batch;
    EXPECT_EQ(job.Finish().steps, 2);
  }
}

// The rounding reveals the order of the additions. It equals the tree's bit for bit.
TEST_P(Sums, AreAddedInTreeOrder) {
  const auto [slices, workers, transport] = GetParam();
  if (workers > slices) return;
  config::Config config =
      SmallConfig(static_cast<uint32_t>(workers), static_cast<uint32_t>(slices));
  config.mutable_run()->set_steps(2);
  TestJob job(config, transport);
  const std::vector<float> seen = RunWorkers(job, {.gradient = Rough});
  for (const Variable& variable : job.graph().variables()) {
    for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
      bool any;
      const float sum = TreeSumOf([&](int64_t s) { return Rough(0, s, i); }, Root(slices), slices,
                                  [](int64_t) { return false; }, &any);
      ASSERT_EQ(std::bit_cast<uint32_t>(seen[i]), std::bit_cast<uint32_t>(0.0f - sum));
    }
  }
  job.Finish();
}

INSTANTIATE_TEST_SUITE_P(SlicesAndWorkers, Sums,
                         ::testing::Combine(::testing::Range(1, 10), ::testing::Range(1, 5),
                                            ::testing::Values("ipc", "local")));

TEST(Exchange, BitsDoNotDependOnTransportThreadsOrChunks) {
  const auto momentum = [](config::Config& config) {
    config.mutable_optimizer()->set_type(config::Optimizer::MOMENTUM);
    config.mutable_optimizer()->set_momentum(0.9f);
  };
  const uint64_t hash = HashAfter(3, 4, {.gradient = Rough}, momentum);
  EXPECT_EQ(HashAfter(3, 4, {.gradient = Rough}, momentum, "tcp"), hash);
  EXPECT_EQ(HashAfter(3, 4, {.gradient = Rough}, momentum, "local"), hash);
  for (const uint32_t threads : {1u, 4u}) {
    EXPECT_EQ(HashAfter(3, 4, {.gradient = Rough},
                        [&](config::Config& config) {
                          momentum(config);
                          config.mutable_server()->set_threads(threads);
                        }),
              hash);
  }
  for (const int64_t bytes : {int64_t{2048}, int64_t{4000}, int64_t{1} << 20}) {
    EXPECT_EQ(HashAfter(3, 4, {.gradient = Rough},
                        [&](config::Config& config) {
                          momentum(config);
                          config.mutable_cluster()->set_chunk_bytes(bytes);
                        }),
              hash);
  }
}

TEST(Exchange, BitsDoNotDependOnArrivalOrder) {
  const uint64_t hash = HashAfter(3, 6, {.gradient = Rough});
  std::mt19937 random(5);
  for (int round = 0; round < 4; ++round) {
    std::atomic<unsigned> seed{static_cast<unsigned>(random())};
    const WorkerBehaviour shuffled{
        .gradient = Rough,
        .chunk_order =
            [&](size_t chunks) {
              std::vector<size_t> order(chunks);
              for (size_t i = 0; i < chunks; ++i) order[i] = i;
              std::mt19937 mine(seed++);
              std::shuffle(order.begin(), order.end(), mine);
              return order;
            },
        .before_step =
            [&](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(seed++ % 7)); }};
    EXPECT_EQ(HashAfter(3, 6, shuffled), hash);
  }
}

// The server adds the blocks of an evaluation in order: block b reports b + 1 and one correct
// sample.
TEST(Exchange, EvaluationIsSpreadOverTheWorkers) {
  for (const uint32_t workers : {1u, 2u, 3u}) {
    config::Config config = SmallConfig(workers, 4);
    config.mutable_evaluation()->set_skip_final(false);
    config.mutable_evaluation()->set_batch(10);
    config.mutable_evaluation()->set_every_steps(1);
    TestJob job(config);
    job.test_samples = 70;
    RunWorkers(job, {.gradient = Rough});
    const ServerResult result = job.Finish();
    ASSERT_TRUE(result.test_accuracy.has_value());
    EXPECT_DOUBLE_EQ(*result.test_accuracy, 7.0 / 70);
  }
}

}  // namespace
}  // namespace muster::testing
