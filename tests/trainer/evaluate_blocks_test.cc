// Evaluating blocks without a server gives the same results with any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/trainer/predict.h"

namespace muster {
namespace {

constexpr const char* kConfig = R"(
  run { epochs: 1 global_batch: 8 }
  data {
    format: SYNTHETIC
    synthetic { height: 8 width: 8 classes: 3 train_samples: 8 test_samples: 45 }
  }
  model {
    layer { name: "conv" conv2d { filters: 4 kernel: 3 padding: SAME } }
    layer { name: "flat" flatten {} }
    layer { name: "out" dense { units: 3 } }
    layer { name: "loss" softmax_cross_entropy {} }
  }
  optimizer { type: SGD }
  learning_rate { base: 0.1 }
  evaluation { batch: 10 }
)";

struct Block {
  int64_t samples = 0;
  double loss = 0;
  std::vector<int32_t> predicted;
  std::vector<int32_t> largest;  // the class of the largest logit
  bool operator==(const Block&) const = default;
};
using Blocks = std::map<int64_t, Block>;

// The results of `threads` threads. After `most` blocks an error occurs.
Blocks Evaluated(uint32_t threads, size_t most = 100) {
  config::Config config = ParseConfigText(kConfig, "test");
  config.mutable_cluster()->set_workers(threads);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  Arena weights(graph.arena_floats());
  float angle = 0;
  for (float& weight : weights.floats()) weight = std::sin(angle += 1);
  const Datasets data = OpenDatasets(config.data(), 1);
  Blocks blocks;
  const auto keep = [&](const PreparedBatch& batch, const LossSums& sums,
                        std::span<const int32_t> predicted, std::span<const float> logits) {
    if (blocks.size() == most) throw Error(ExitCode::kData, "no more");
    Block block{batch.count, sums.loss, {predicted.begin(), predicted.end()}, {}};
    for (auto at = logits.begin(); block.largest.size() < predicted.size(); at += 3)
      block.largest.push_back(static_cast<int32_t>(std::max_element(at, at + 3) - at));
    const bool is_new = blocks.emplace(batch.index, block).second;
    EXPECT_TRUE(is_new);
  };
  EvaluateBlocks(
      config, graph, [] { return MakeCpuBackend(1); }, weights.floats(), *data.test, true, keep);
  return blocks;
}

TEST(EvaluateBlocksTest, TheSameFromAnyNumberOfThreads) {
  const Blocks blocks = Evaluated(1);
  ASSERT_EQ(blocks.size(), 5U);
  EXPECT_EQ(blocks.at(4).samples, 5);
  EXPECT_EQ(blocks.at(4).predicted.size(), 5U);
  for (const auto& [index, block] : blocks) EXPECT_EQ(block.largest, block.predicted);
  EXPECT_EQ(Evaluated(3), blocks);
  EXPECT_EQ(Evaluated(8), blocks);
}

TEST(EvaluateBlocksTest, AnErrorOfOneThreadEndsAll) {
  EXPECT_THROW((void)Evaluated(3, 1), Error);
  EXPECT_THROW((void)Evaluated(1, 4), Error);
}

}  // namespace
}  // namespace muster
