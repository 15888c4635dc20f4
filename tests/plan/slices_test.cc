#include "common/plan/slices.h"

#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "common/config/job_size.h"
#include "common/plan/chunks.h"
#include "common/plan/step_plan.h"
#include "ps/update/choose_kernels.h"
#include "ps/update/tree_sum.h"
#include "tests/job/test_job.h"
#include "tests/ps/tree_sum_reference.h"

namespace muster {
namespace {

TEST(EvenPart, CutsEverythingIntoNearlyEqualParts) {
  for (int64_t n = 0; n < 40; ++n) {
    for (int64_t parts = 1; parts < 12; ++parts) {
      int64_t at = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const Range part = EvenPart(n, parts, i);
        EXPECT_EQ(part.begin, at);
        EXPECT_GE(part.size(), n / parts);
        EXPECT_LE(part.size(), (n + parts - 1) / parts);
        at = part.end;
      }
      EXPECT_EQ(at, n);
    }
  }
  EXPECT_EQ(EvenPart(int64_t{1} << 60, 3, 2).end, int64_t{1} << 60);  // no overflow
}

TEST(Decompose, CoversARangeWithTheFewestSubtrees) {
  for (int64_t slices = 1; slices <= 20; ++slices) {
    for (int64_t begin = 0; begin <= slices; ++begin) {
      for (int64_t end = begin; end <= slices; ++end) {
        int64_t at = begin;
        for (const TreeNode& node : Decompose({begin, end}, slices)) {
          EXPECT_EQ(Covers(node, slices).begin, at);
          EXPECT_FALSE(Covers(node, slices).empty());
          at = Covers(node, slices).end;
        }
        EXPECT_EQ(at, end);
      }
    }
    EXPECT_EQ(Decompose({0, slices}, slices), std::vector<TreeNode>{Root(slices)});
  }
  EXPECT_EQ(Decompose({1, 6}, 8), (std::vector<TreeNode>{{0, 1}, {1, 1}, {1, 2}}));
  EXPECT_EQ(Decompose({2, 3}, 3), (std::vector<TreeNode>{{1, 1}}));  // half a node is not a subtree
}

TEST(TreeSum, AddsInTreeOrderWhoeverHoldsWhat) {
  for (int64_t slices = 1; slices <= 9; ++slices) {
    for (int64_t workers = 1; workers <= slices; ++workers) {
      for (int empty_mask = 0; empty_mask < (slices < 6 ? 1 << slices : 1); ++empty_mask) {
        const auto empty = [&](int64_t s) { return (empty_mask >> s & 1) != 0; };
        const auto value = [](int64_t s) { return 1.0f / static_cast<float>(3 * s + 1); };
        std::vector<TreeNode> nodes;
        std::vector<std::vector<float>> storage;
        std::vector<const void*> parts;
        for (int64_t r = 0; r < workers; ++r) {
          for (const TreeNode& node : Decompose(EvenPart(slices, workers, r), slices)) {
            bool any;
            const float sum = testing::TreeSumOf(value, node, slices, empty, &any);
            nodes.push_back(node);
            storage.push_back(std::vector<float>(5, sum));
            parts.push_back(any ? storage.back().data() : nullptr);
          }
        }
        const TreeSum tree(nodes, slices);
        std::vector<float> scratch(tree.scratch_floats());
        const float* sum = tree.Run(*AvailableKernels().back(), wire::FP32, parts, 1, 3, scratch);
        bool any;
        const float expected = testing::TreeSumOf(value, Root(slices), slices, empty, &any);
        ASSERT_EQ(sum != nullptr, any);
        if (any) {
          ASSERT_EQ(sum[2], expected);
        }
      }
    }
  }
}

TEST(StepPlan, VisitsEverySampleOncePerEpoch) {
  const StepPlan plan{.train_samples = 23, .global_batch = 5, .total_steps = 10, .slices = 3};
  EXPECT_EQ(plan.StepsPerEpoch(), 5);
  int64_t before = 0;
  for (int64_t step = 0; step < plan.total_steps; ++step) {
    const Batch batch = plan.At(step);
    EXPECT_EQ(batch.epoch, step / 5);
    EXPECT_EQ(batch.samples_before, before);
    EXPECT_EQ(batch.samples, step % 5 == 4 ? 3 : 5);
    int64_t at = batch.first;
    for (int64_t s = 0; s < 3; ++s) {
      EXPECT_EQ(plan.Slice(batch, s).begin, at);
      at = plan.Slice(batch, s).end;
    }
    EXPECT_EQ(at, batch.first + batch.samples);
    before += batch.samples;
  }
}

TEST(StepPlan, MayLeaveOutTheLastBatch) {
  const StepPlan plan{.train_samples = 23, .global_batch = 5, .total_steps = 10, .drop_last = true};
  EXPECT_EQ(plan.StepsPerEpoch(), 4);
  EXPECT_EQ(plan.SamplesPerEpoch(), 20);
  for (int64_t step = 0; step <= plan.total_steps; ++step) {
    const Batch batch = plan.At(step);
    EXPECT_EQ(batch.epoch, step / 4);
    EXPECT_EQ(batch.first, step % 4 * 5);
    EXPECT_EQ(batch.samples, 5);
    EXPECT_EQ(batch.samples_before, 5 * step);
    EXPECT_EQ(plan.EpochsOf(batch.samples_before), static_cast<double>(step) / 4);
  }
  EXPECT_TRUE(plan.IsSane());
  StepPlan even = plan;
  even.train_samples = 20;
  EXPECT_EQ(even.StepsPerEpoch(), 4);
  StepPlan empty = plan;
  empty.train_samples = 4;
  EXPECT_FALSE(empty.IsSane());
  EXPECT_EQ(empty.At(1).samples_before, 4);  // nothing is divided by 0
}

TEST(Chunks, AreSmallerOverSocketsThanInSharedMemory) {
  config::Model model;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(layer { name: "wide" dense { units: 4000000 } }  # 30 MiB
         layer { name: "loss" mean_squared_error {} })",
      &model));
  const Graph graph = BuildGraph(model, {1, 1, 1});
  const auto count = [&](const char* text) {
    config::Cluster cluster;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &cluster)) << text;
    return CutChunks(graph.layout(), cluster).size();
  };
  EXPECT_EQ(count(""), count("transport: LOCAL"));
  EXPECT_EQ(count("transport: TCP"), count("transport: IPC"));
  EXPECT_EQ(count("transport: TCP"), count("transport: AUTO wire_dtype: BF16"));
  EXPECT_EQ(count("transport: TCP"), 31u);
  EXPECT_LT(count("transport: LOCAL"), 27u);
}

TEST(Chunks, CoverTheArenaInOrderAndEndAtLayers) {
  const Graph graph = BuildGraph(testing::SmallConfig(1, 1).model(), {1, 1, 3});
  for (const int64_t bytes : {1024, 1500, 2048, 4096, 1 << 20}) {
    config::Cluster cluster;
    cluster.set_chunk_bytes(bytes);
    const std::vector<Chunk> chunks = CutChunks(graph.layout(), cluster);
    size_t at = 0;
    for (const Chunk& chunk : chunks) {
      EXPECT_EQ(chunk.begin, at);
      EXPECT_EQ(chunk.begin % 16, 0u);
      EXPECT_LE(chunk.floats() * 4, static_cast<size_t>(bytes) + 64);
      // If a chunk has several layers, it has all of them.
      EXPECT_LE(chunk.first_layer, chunk.last_layer);
      at = chunk.end;
    }
    EXPECT_EQ(at, graph.arena_floats());
  }
}

TEST(Chunks, AreNoMoreThanAMessageCanName) {
  config::Config config = testing::SmallConfig(1, 1);
  config.mutable_model()->mutable_layer(0)->mutable_dense()->set_units(5000000);
  const Graph graph = BuildGraph(config.model(), {1, 1, 3});
  config.mutable_cluster()->set_chunk_bytes(1024);
  try {
    (void)CutChunks(graph.layout(), config.cluster());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("expected at most 65536, with at least 8192"));
  }
  config.mutable_cluster()->set_chunk_bytes(8192);
  EXPECT_LE(CutChunks(graph.layout(), config.cluster()).size(), 65536u);
}

}  // namespace
}  // namespace muster
