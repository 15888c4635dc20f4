// cluster.wire_dtype through a real server and real sockets: gradients and weights in 16 bits.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/job/test_job.h"
#include "tests/ps/tree_sum_reference.h"
#include "worker/client/wire_buffers.h"

namespace muster::testing {
namespace {

class WireDtypeTest : public ::testing::TestWithParam<config::Cluster::WireDtype> {
 protected:
  config::Config Config(uint32_t workers, uint32_t slices) const {
    config::Config config = SmallConfig(workers, slices);
    config.mutable_cluster()->set_wire_dtype(GetParam());
    return config;
  }
  WireType type() const { return GetParam() == config::Cluster::BF16 ? wire::BF16 : wire::FP16; }
  float Rounded(float value) const {
    RoundToWire(type(), {&value, 1});
    return value;
  }
  uint64_t HashAfter(const config::Config& config, const std::string& transport = "ipc") const {
    TestJob job(config, transport);
    RunWorkers(job, {.gradient = Rough});
    return job.Finish().weights_hash;
  }
};

// The server's own weights are not rounded, but the workers' copies, gradients and their sums are.
TEST_P(WireDtypeTest, RoundsGradientsSumsAndWhatWorkersSee) {
  for (const auto& [workers, slices] :
       {std::pair{1u, 1u}, {1u, 3u}, {2u, 2u}, {2u, 5u}, {3u, 3u}}) {
    config::Config config = Config(workers, slices);
    config.mutable_run()->set_steps(3);
    TestJob job(config);
    const std::vector<float> seen = RunWorkers(job, {.gradient = Rough});
    int differ = 0;
    for (const Variable& variable : job.graph().variables()) {
      for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
        float master = 0, unrounded = 0;
        for (const int64_t step : {0, 1}) {
          bool any;
          const auto value = [&](int64_t s) { return Rough(step, s, i); };
          const auto never = [](int64_t) { return false; };
          master -= TreeSumOf(value, Root(slices), slices, never, &any, type());
          unrounded -= TreeSumOf(value, Root(slices), slices, never, &any);
        }
        ASSERT_EQ(std::bit_cast<uint32_t>(seen[i]), std::bit_cast<uint32_t>(Rounded(master)));
        differ += seen[i] != Rounded(unrounded);
      }
    }
    EXPECT_GT(differ, 0);  // the comparison can fail
    job.Finish();
  }
}

TEST_P(WireDtypeTest, BitsDoNotDependOnWorkersTransportChunksOrThreads) {
  const uint64_t hash = HashAfter(Config(1, 7));
  for (const uint32_t workers : {2u, 3u, 4u, 7u}) EXPECT_EQ(HashAfter(Config(workers, 7)), hash);
  EXPECT_EQ(HashAfter(Config(3, 7), "tcp"), hash);
  config::Config other = Config(3, 7);
  other.mutable_cluster()->set_chunk_bytes(1 << 20);
  other.mutable_server()->set_threads(1);
  other.mutable_server()->set_io_threads(2);
  EXPECT_EQ(HashAfter(other), hash);
  EXPECT_NE(HashAfter(SmallConfig(1, 7)), hash);
  EXPECT_NE(HashAfter(Config(1, 8)), hash);
}

// More chunks are pushed at the same time than there are buffers for rounding.
TEST_P(WireDtypeTest, GradientsWaitForBuffers) {
  config::Config config = Config(2, 2);
  config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(2000);
  std::optional<uint64_t> hash;
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{1} << 10}) {
    config.mutable_cluster()->set_chunk_bytes(bytes);
    TestJob job(config, "tcp");
    if (bytes == 1 << 10) {
      EXPECT_GT(job.graph().arena_floats() * sizeof(float) / bytes, 10 * WireBuffers::kCount);
    }
    RunWorkers(job, {.gradient = Rough});
    const uint64_t mine = job.Finish().weights_hash;
    EXPECT_EQ(hash.value_or(mine), mine);
    hash = mine;
  }
}

// With fewer samples than slices, subtrees without samples are skipped.
TEST_P(WireDtypeTest, EmptySlicesTakeNoPart) {
  for (const int64_t batch : {3, 4, 5}) {
    std::optional<uint64_t> hash;
    for (const uint32_t workers : {1u, 2u, 3u, 7u, 8u}) {
      config::Config config = Config(workers, 8);
      config.mutable_run()->set_global_batch(batch);
      TestJob job(config);
      const std::vector<float> seen = RunWorkers(job, {.gradient = Rough});
      const auto empty = [&](int64_t s) { return EvenPart(batch, 8, s).empty(); };
      for (const Variable& variable : job.graph().variables()) {
        const size_t i = variable.offset + variable.count - 1;
        float master = 0;
        for (const int64_t step : {0, 1}) {
          bool any;
          master -= TreeSumOf([&](int64_t s) { return Rough(step, s, i); }, Root(8), 8, empty, &any,
                              type());
        }
        EXPECT_EQ(seen[i], Rounded(master)) << batch << ", " << workers;
      }
      const uint64_t mine = job.Finish().weights_hash;
      EXPECT_EQ(hash.value_or(mine), mine);
      hash = mine;
    }
  }
}

// In two phases, and with a step that changes nothing.
TEST_P(WireDtypeTest, ASkippedStepKeepsTheWeightsOfBoth) {
  config::Config config = Config(2, 2);
  config.mutable_run()->set_steps(3);
  config.mutable_run()->set_on_nonfinite(config::Run::SKIP_STEP);
  TestJob job(config);
  const std::vector<float> seen = RunWorkers(
      job, {.gradient = [](int64_t step, int64_t, size_t) { return step == 1 ? NAN : 0.3f; }});
  for (const float w : seen) EXPECT_EQ(w, Rounded(-Rounded(Rounded(0.3f) + Rounded(0.3f))));
  EXPECT_EQ(job.Finish().steps, 3);
}

TEST_P(WireDtypeTest, TheAverageTravelsRoundedToo) {
  config::Config config = Config(2, 2);
  config.mutable_run()->set_steps(2);
  config.mutable_optimizer()->set_ema_decay(0.75);
  config.mutable_evaluation()->set_use_ema(true);
  config.mutable_evaluation()->set_skip_final(false);
  config.mutable_evaluation()->set_batch(5);
  TestJob job(config);
  job.test_samples = 10;
  std::vector<float> averages;
  RunWorkers(job, {.gradient = [](int64_t, int64_t, size_t) { return 0.3f; },
                   .on_average =
                       [&](int64_t, std::span<const float> average) {
                         averages.assign(average.begin(), average.end());
                       }});
  const float g = Rounded(Rounded(0.3f) + Rounded(0.3f));
  const float decay = 0.75f, rest = 0.25f, w1 = 0.0f - g, w2 = w1 - g;
  const float a1 = rest * w1, a2 = decay * a1 + rest * w2;
  ASSERT_EQ(averages.size(), job.graph().arena_floats());
  for (const Variable& variable : job.graph().variables()) {
    EXPECT_EQ(averages[variable.offset], Rounded(a2)) << variable.name;
  }
  job.Finish();
}

// Shared memory would not be rounded, so even workers on the server's host use ZeroMQ.
TEST_P(WireDtypeTest, NoMemoryIsShared) {
  config::Config config = Config(1, 1);
  config.mutable_cluster()->set_transport(config::Cluster::AUTO);
  TestJob job(config);
  auto client = job.Join(0);
  EXPECT_STREQ(client->link().transport(), "ZeroMQ");
  EXPECT_EQ(client->terms().wire_type, type());
  RunWorker(*client, {.gradient = Rough});
  client.reset();  // sends Goodbye
  job.Finish();
}

INSTANTIATE_TEST_SUITE_P(Types, WireDtypeTest,
                         ::testing::Values(config::Cluster::BF16, config::Cluster::FP16),
                         [](const auto& info) {
                           return config::Cluster::WireDtype_Name(info.param);
                         });

TEST(Fp16OnTheWire, AGradientThatDoesNotFitIsNamed) {
  config::Config config = SmallConfig(1, 1);
  config.mutable_cluster()->set_wire_dtype(config::Cluster::FP16);
  TestJob job(config);
  EXPECT_ANY_THROW(RunWorkers(
      job, {.gradient = [](int64_t, int64_t, size_t i) { return i == 5 ? 70000.0f : 1.0f; }}));
  ExitCode code;
  EXPECT_THAT(job.FinishError(&code),
              ::testing::AllOf(::testing::HasSubstr("[5] is inf"), ::testing::HasSubstr("rank 0")));
  EXPECT_EQ(code, ExitCode::kNonfinite);
}

TEST(Fp16OnTheWire, AWeightThatDoesNotFitIsNamed) {
  config::Config config = SmallConfig(1, 1);
  config.mutable_cluster()->set_wire_dtype(config::Cluster::FP16);
  TestJob job(config);
  EXPECT_ANY_THROW(RunWorkers(
      job, {.gradient = [](int64_t, int64_t, size_t i) { return i == 5 ? -40000.0f : 1.0f; }}));
  ExitCode code;
  EXPECT_THAT(job.FinishError(&code),
              ::testing::AllOf(::testing::HasSubstr("80000"), ::testing::HasSubstr("FP16")));
  EXPECT_EQ(code, ExitCode::kNonfinite);
}

}  // namespace
}  // namespace muster::testing
