#include "cli/job/memory_check.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LeastMemory Needed(const std::string& more) {
  config::Config config, given;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(more, &given));
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(run { steps: 1 global_batch: 64 slices: 4 } cluster { workers: 2 }
         data { format: SYNTHETIC synthetic { height: 4 width: 4 channels: 1 train_samples: 1000 } }
         model { layer { name: "fc" dense { units: 16 } }
                 layer { name: "loss" softmax_cross_entropy {} } } )",
      &config));
  config.MergeFrom(given);
  return LeastMemoryOf(config, BuildGraph(config.model(), InputShape(config.data())));
}

TEST(LeastMemoryTest, CountsArrays) {
  const double arena = 4 * (16 * 16 + 16), outputs = 4 * 16 * 16, order = 8 * 1000;
  const LeastMemory needed = Needed("");
  // Two parameter buffers, the best weights twice, a copy for checkpoints, a gradient of each
  // worker.
  EXPECT_EQ(needed.server, (2 + 2 + 1 + 2) * arena);
  EXPECT_EQ(Needed("evaluation { every_epochs: 0 skip_final: true }").server, (2 + 1 + 2) * arena);
  // The previous average and optimizer state are saved as well. A checkpoint has one of each.
  EXPECT_EQ(Needed("optimizer { type: ADAM ema_decay: 0.9 }").server,
            (2 + 4 + 3 + 2 + 4 + 2) * arena);
  EXPECT_EQ(needed.each_worker, outputs + order);
  EXPECT_EQ(needed.all(), needed.server + 2 * needed.each_worker);
  EXPECT_EQ(Needed("cluster { transport: TCP }").each_worker, outputs + order + 2 * arena);
  // Activations on a GPU use no host memory.
  EXPECT_EQ(Needed("worker { backend: CUDA }").each_worker, order);
  EXPECT_EQ(Needed("run { epochs: 2 }").each_worker, outputs + 2 * order);
}

TEST(LeastMemoryTest, OfWorkersThatSayTheirOwn) {
  config::Config config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(run { steps: 1 global_batch: 64 slices: 4 } cluster { workers: 2 }
         data { format: SYNTHETIC synthetic { height: 4 width: 4 channels: 1 } }
         model { layer { name: "fc" dense { units: 16 } }
                 layer { name: "loss" softmax_cross_entropy {} } })",
      &config));
  using Holder = MemoryRow::Holder;
  const LeastMemory needed =
      WholeMemoryOf(config, BuildGraph(config.model(), InputShape(config.data())),
                    {{"activations", 5e9, Holder::kProcess},
                     {"weights", 7e9, Holder::kServer},
                     {"images", 9e9, Holder::kHost},
                     {"activations", 11e9, Holder::kCard}});
  EXPECT_EQ(needed.each_worker, 5e9);
  EXPECT_EQ(needed.workers, 2);
  EXPECT_EQ(needed.server, Needed("").server);
}

TEST(CheckMemoryTest, WarnsAndRefuses) {
  const LeastMemory needed{.server = 4e9, .each_worker = 3e9, .workers = 2};
  EXPECT_EQ(CheckMemory(needed, {.all = 16e9, .available = 10e9}), "");
  EXPECT_THAT(CheckMemory(needed, {.all = 16e9, .available = 9e9}),
              AllOf(HasSubstr("at least 10.0 GB"), HasSubstr("9.00 GB is available now")));
  try {
    (void)CheckMemory(needed, {.all = 9e9, .available = 8e9});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("3.00 GB for each of 2 workers"),
                                    HasSubstr("this machine has 9.00 GB"), HasSubstr("run.slices"),
                                    HasSubstr("--dry-run")));
  }
}

TEST(CheckMemoryTest, ThisMachineHasSome) {
  const MachineMemory machine = ReadMachineMemory();
  EXPECT_GT(machine.all, 1e8);
  EXPECT_GT(machine.available, 1e6);
  EXPECT_LE(machine.available, machine.all);
}

}  // namespace
}  // namespace muster
