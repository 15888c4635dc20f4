// Every config of the tree loads, fits its model and data, and has a known job size.
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cli/job/dry_run.h"
#include "cli/job/memory_check.h"
#include "cli/model/inspect_command.h"
#include "cli/text/units.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "tests/base/paths.h"
#include "tests/cli/text/unwrapped.h"

namespace muster {
namespace {

std::vector<std::string> Configs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(ConfigPath(""))) {
    if (entry.path().extension() == ".txtpb") paths.push_back(entry.path().stem());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ConfigsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ConfigsTest, ReadsChecksAndInspects) {
  const std::string path = ConfigPath(GetParam() + ".txtpb");
  std::vector<Setting> settings;
  if (GetParam().starts_with("imagefolder") || GetParam().starts_with("cats_vs_dogs")) {
    settings.push_back(ParseSetting("data.class_names=[\"cat\", \"dog\"]"));
  }
  if (GetParam().starts_with("tabular")) {
    settings.push_back(ParseSetting("data.npz={height: 1 width: 1 channels: 30 classes: 2}"));
  }
  config::Config config = LoadConfig(path, settings);
  EXPECT_GT(InspectLines(config, 80).size(), 10u);
  ResolveForMachine(config, 2);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const std::vector<MemoryRow> rows{{"activations", 5e6},
                                    {"weights", 7e6, MemoryRow::Holder::kServer},
                                    {"images", 11e6, MemoryRow::Holder::kHost}};
  const auto lines =
      DryRunLines(path, config, graph, rows, "somewhere", {.data = {.train = 1000, .test = 100}});
  using ::testing::Contains, ::testing::HasSubstr;
  EXPECT_THAT(lines, Contains(HasSubstr("1,000 for training")));
  EXPECT_EQ(config.cluster().workers(), 2u);
  EXPECT_EQ(config.run().slices(), 8u);
  const std::string text = testing::Unwrapped(Join(lines, "\n"));
  EXPECT_THAT(text, HasSubstr("on 1 to 8 workers (run.slices=8)"));
  EXPECT_THAT(text, HasSubstr(fmt::format("run.global_batch={}, run.slices=8, worker.threads=1",
                                          config.run().global_batch())));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("worker"), HasSubstr("23.0 MB"))));
  // The server's memory is in the server's rows, and the host's files are counted once.
  const double all = SumOf(ServerMemory(config, graph)) + config.cluster().workers() * 5e6 + 11e6;
  EXPECT_THAT(lines,
              Contains(AllOf(HasSubstr("total, shared parts"), HasSubstr(FormatBytes(all)))));
}

INSTANTIATE_TEST_SUITE_P(All, ConfigsTest, ::testing::ValuesIn(Configs()),
                         [](const auto& info) { return info.param; });

// Worked out by hand: 10 x 12 weights and 10 biases, each rounded up to 16 floats.
TEST(ServerMemoryTest, CountsArrays) {
  config::Config config;
  config.mutable_cluster()->set_workers(2);
  config.mutable_cluster()->set_transport(config::Cluster::TCP);
  config.mutable_run()->set_global_batch(16);
  config.mutable_run()->set_slices(8);
  config.mutable_data()->set_format(config::Data::SYNTHETIC);
  config.mutable_data()->mutable_synthetic()->set_height(2);
  config.mutable_data()->mutable_synthetic()->set_width(2);
  config.mutable_data()->set_prefetch_batches(3);
  config.mutable_optimizer()->set_type(config::Optimizer::ADAM);
  config.mutable_evaluation()->set_batch(5);
  config::Layer& layer = *config.mutable_model()->add_layer();
  layer.set_name("fc");
  layer.mutable_dense()->set_units(10);
  config::Layer& loss = *config.mutable_model()->add_layer();
  loss.set_name("loss");
  loss.mutable_softmax_cross_entropy();
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const double arena = 4 * (128 + 16);
  ASSERT_EQ(4 * graph.arena_floats(), arena);
  // Two planes, two moments, the best weights twice, a copy of one plane and both moments for
  // checkpoints, and a subtree of four slices from each worker.
  EXPECT_EQ(SumOf(ServerMemory(config, graph)), (2 + 2 + 2 + 3 + 2) * arena);
  // Over shared memory the gradients take the same space.
  config.mutable_cluster()->set_transport(config::Cluster::LOCAL);
  EXPECT_EQ(SumOf(ServerMemory(config, graph)), (2 + 2 + 2 + 3 + 2) * arena);
  config.mutable_checkpoint()->set_keep_last(0);
  EXPECT_EQ(SumOf(ServerMemory(config, graph)), (2 + 2 + 2 + 2) * arena);
}

}  // namespace
}  // namespace muster
