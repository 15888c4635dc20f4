// A worker that needs twice as long for a slice gets half as many, over every transport. The result
// has the bits of equal shares.
#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "common/base/error.h"
#include "tests/job/hardy_worker.h"

namespace muster::testing {
namespace shares_test {

using ::testing::Contains;
using ::testing::ElementsAre;

constexpr uint32_t kWorkers = 2;
constexpr int64_t kSlices = 16;

struct Variant {
  const char* name;
  const char* settings;
};

config::Config Config(const char* settings) {
  config::Config config = SmallConfig(kWorkers, kSlices);
  config::Config more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(settings, &more)) << settings;
  config.MergeFrom(more);
  config.mutable_run()->set_steps(36);
  config.mutable_evaluation()->set_every_steps(7);
  config.mutable_evaluation()->set_batch(4);
  config.mutable_evaluation()->clear_skip_final();
  return config;
}

struct Trained {
  uint64_t weights_hash = 0;
  std::set<std::vector<int64_t>> shares;  // all shares during the run, by rank
};

// Rank 1 takes twice as long: with equal shares 64 ms per step, so that shares are checked before
// the end. Workers without measured shares need not sleep.
Trained Train(const config::Config& config, const std::string& transport) {
  TestJob job(config, transport);
  job.test_samples = 64;
  Trained trained;
  std::mutex mutex;
  std::map<int64_t, std::vector<int64_t>> slices;  // by step
  std::string errors;
  std::vector<std::jthread> workers;
  for (uint32_t rank = 0; rank < kWorkers; ++rank) {
    workers.emplace_back([&, rank] {
      HardyWorker worker(job, rank, [](Point, int64_t, Client&) {});
      const bool measured = config.cluster().shares() == config::Cluster::MEASURED;
      if (measured) worker.TakesForASlice(std::chrono::milliseconds(rank == 1 ? 8 : 4));
      worker.TellsSlices([&, rank](int64_t step, int64_t count) {
        const std::lock_guard lock(mutex);
        slices.try_emplace(step, kWorkers).first->second[rank] = count;
      });
      try {
        (void)worker.Run();
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        errors += error.what();
      }
    });
  }
  trained.weights_hash = job.Finish().weights_hash;
  workers.clear();
  EXPECT_EQ(errors, "");
  for (const auto& [step, shares] : slices) trained.shares.insert(shares);
  return trained;
}

class MeasuredShares : public ::testing::TestWithParam<std::tuple<const char*, Variant>> {};

TEST_P(MeasuredShares, MoveAndGiveTheSameBits) {
  const auto& [transport, variant] = GetParam();
  config::Config config = Config(variant.settings);
  config.mutable_cluster()->set_shares(config::Cluster::MEASURED);
  const Trained measured = Train(config, transport);
  EXPECT_THAT(measured.shares, Contains(ElementsAre(8, 8)));
  EXPECT_THAT(measured.shares, Contains(ElementsAre(11, 5)));
  config.mutable_cluster()->set_shares(config::Cluster::EVEN);
  EXPECT_EQ(measured.weights_hash, Train(config, transport).weights_hash);
}

std::vector<std::tuple<const char*, Variant>> Cases() {
  const Variant rounded{"Bf16", "cluster { wire_dtype: BF16 on_lost_worker: CONTINUE }"};
  std::vector<std::tuple<const char*, Variant>> cases;
  for (const char* const transport : {"ipc", "tcp", "local"}) {
    for (const Variant& variant :
         {Variant{"MomentumAbort",
                  "optimizer { type: MOMENTUM } cluster { on_lost_worker: ABORT }"},
          Variant{"AdamAverageClipSkip",
                  "optimizer { type: ADAM ema_decay: 0.9 clip_norm: 0.5 } evaluation { use_ema: "
                  "true } run { on_nonfinite: SKIP_STEP } learning_rate { base: 0.01 } cluster { "
                  "on_lost_worker: CONTINUE }"}}) {
      cases.emplace_back(transport, variant);
    }
    // The local link has no 16-bit mode.
    if (std::string(transport) != "local") cases.emplace_back(transport, rounded);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Over, MeasuredShares, ::testing::ValuesIn(Cases()),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param)) +
                                  std::get<1>(tested.param).name;
                         });

}  // namespace shares_test
}  // namespace muster::testing
