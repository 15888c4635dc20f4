// Every config of the tree can be read, fits its model and its data, and says how large a job is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "common/config.h"
#include "launch/dry_run.h"
#include "launch/inspect_command.h"
#include "launch/memory_estimate.h"

namespace muster {
namespace {

std::vector<std::string> Configs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(MUSTER_CONFIG_DIR)) {
    if (entry.path().extension() == ".txtpb") paths.push_back(entry.path().stem());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ConfigsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ConfigsTest, ReadsChecksAndInspects) {
  const std::string path = std::string(MUSTER_CONFIG_DIR) + "/" + GetParam() + ".txtpb";
  config::Config config = LoadConfig(path, {});
  EXPECT_GT(InspectLines(config).size(), 10u);
  ResolveForMachine(config, 2);
  const Graph graph = Graph::Build(config.model(), InputShape(config.data()));
  const auto lines = DryRunLines(path, config, graph, {.train = 1000, .test = 100}, "somewhere");
  EXPECT_THAT(lines, ::testing::Contains(::testing::HasSubstr("1,000 for training")));
}

INSTANTIATE_TEST_SUITE_P(All, ConfigsTest, ::testing::ValuesIn(Configs()),
                         [](const auto& info) { return info.param; });

double Sum(const std::vector<MemoryRow>& rows) {
  double sum = 0;
  for (const MemoryRow& row : rows) sum += row.bytes;
  return sum;
}

// Numbers worked out by hand: 10 x 12 weights and 10 biases, each rounded up to 16 floats.
TEST(MemoryEstimateTest, CountsArrays) {
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
  const Graph graph = Graph::Build(config.model(), InputShape(config.data()));
  const double arena = 4 * (128 + 16);
  ASSERT_EQ(4 * graph.arena_floats(), arena);
  // Two planes, two moments, one subtree of four slices from each worker.
  EXPECT_EQ(Sum(ServerMemory(config, graph)), (2 + 2 + 2) * arena);
  config.mutable_cluster()->set_transport(config::Cluster::LOCAL);
  EXPECT_EQ(Sum(ServerMemory(config, graph)), (2 + 2) * arena);
  const std::vector<MemoryRow> worker = WorkerMemory(config, graph, 1, 1000, 100);
  EXPECT_EQ(worker[0].bytes, arena);      // the gradient to push
  EXPECT_EQ(worker[1].bytes, 2 * arena);  // the tree below it has two more levels
  const double logits = 4 * 10, image = 4 * 12;
  const double outputs = logits + 4.0 * graph.layers().back().output_shape.elements();
  EXPECT_EQ(worker[2].bytes, 2 * (outputs + 2 * logits));
  EXPECT_EQ(worker[3].bytes, 5 * 2 * logits);
  EXPECT_EQ(worker[4].bytes, 4 * 2 * image);
  EXPECT_EQ(worker[5].bytes, 4 * 5 * image);
}

}  // namespace
}  // namespace muster
