// A tower reports its memory, and its programs share copies of the weights.
#include <gtest/gtest.h>

#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster {
namespace {

// A 3x3 convolution from 16 to 32 channels. It uses Winograd from 16 tiles on: 4 images of 4x4.
constexpr const char* kConvolution = R"(
    layer { name: "norm" batch_norm {} }
    layer { name: "conv" conv2d { filters: 32 kernel: 3 padding: SAME use_bias: false } }
    layer { name: "pool" global_avg_pool {} }
    layer { name: "logits" dense { units: 10 } }
    layer { name: "loss" softmax_cross_entropy {} })";

// Forward and backward: 16 positions each, with matrices that are padded by 16 floats.
constexpr size_t kTransformed = 16 * (16 * 32 + 16) * sizeof(float);

class TowerMemoryTest : public testing::Test {
 protected:
  const Graph graph_ = reference::MakeGraph(kConvolution, {8, 8, 16});
  const std::unique_ptr<Backend> backend_ = MakeCpuBackend(1);
  Tower tower_{graph_, *backend_, kSeed};
};

// A dense layer with 7 inputs, computed by hand.
TEST_F(TowerMemoryTest, WorkspaceIsTheClosedFormOfASmallNetwork) {
  const Graph graph = reference::MakeGraph(kNetworks[7].layers, kNetworks[7].input);
  Tower tower(graph, *backend_, kSeed);
  EXPECT_EQ(tower.memory().training + tower.memory().evaluation + tower.memory().layouts, 0u);
  tower.Plan(8, Mode::kInference);
  // Each buffer, rounded up to 16 floats, is followed by a gap of 48. Logits and the loss's state
  // (the softmax) have 8 x 4 floats. Scratch is empty, as is the state of dense, which shares
  // memory with the loss's.
  EXPECT_EQ(tower.memory().evaluation, ((8 * 4 + 48) + (8 * 4 + 48) + (0 + 48)) * sizeof(float));
  EXPECT_EQ(tower.memory().training, 0u);
  EXPECT_EQ(tower.memory().layouts, 0u);
}

TEST_F(TowerMemoryTest, FlipAddsTheMirrorImagesAndTheirLogits) {
  const Graph graph = reference::MakeGraph(kNetworks[7].layers, kNetworks[7].input);
  Tower tower(graph, *backend_, kSeed, {}, true);
  tower.Plan(8, Mode::kInference);
  tower.Plan(8, Mode::kTraining);
  // 8 x 7 floats, rounded up, and twice 8 x 4 at the same time as two empty buffers. The loss's
  // state takes the place of the mirror images.
  EXPECT_EQ(tower.memory().evaluation,
            ((64 + 48) + 2 * (8 * 4 + 48) + 2 * (0 + 48)) * sizeof(float));
  Tower plain(graph, *backend_, kSeed);
  plain.Plan(8, Mode::kTraining);
  EXPECT_EQ(tower.memory().training, plain.memory().training);
}

TEST_F(TowerMemoryTest, PlanningTwiceAsManyTakesTwiceAsMuchAndPrepareNoMore) {
  tower_.Plan(4, Mode::kTraining);
  const TowerMemory four = tower_.memory();
  tower_.Plan(8, Mode::kTraining);
  const TowerMemory eight = tower_.memory();
  EXPECT_GT(eight.training,
            1.4 * four.training);  // the scratch of the weights' gradient is constant
  EXPECT_LE(eight.training, 2 * four.training);
  tower_.Plan(2, Mode::kTraining);  // smaller, so the memory suffices
  EXPECT_EQ(tower_.memory().training, eight.training);
  tower_.Allocate();
  EXPECT_EQ(tower_.memory().training, eight.training);
  EXPECT_EQ(tower_.memory().layouts, eight.layouts);
}

TEST_F(TowerMemoryTest, LayoutsOfTheWeightsAreCountedOnceForAllPrograms) {
  tower_.Plan(4, Mode::kInference);
  EXPECT_EQ(tower_.memory().layouts, kTransformed);
  tower_.Plan(4, Mode::kTraining);
  EXPECT_EQ(tower_.memory().layouts, 2 * kTransformed);
  tower_.Plan(7, Mode::kTraining);
  tower_.Plan(9, Mode::kInference);
  EXPECT_EQ(tower_.memory().layouts, 2 * kTransformed);
}

// oneDNN's blocked copies: the same for each batch size, at most one per direction.
TEST_F(TowerMemoryTest, DirectConvolutionsShareTheirCopies) {
  const auto backend = MakeCpuBackend(1, {.winograd = false});
  Tower tower(graph_, *backend, kSeed);
  tower.Plan(4, Mode::kTraining);
  const size_t one = tower.memory().layouts;
  EXPECT_GT(one, 0u);
  EXPECT_LE(one, 2 * 9 * 16 * 32 * sizeof(float));
  tower.Plan(8, Mode::kTraining);
  EXPECT_EQ(tower.memory().layouts, one);
}

// Three programs that share copies have the bits of separate towers, for increasing versions, then
// those of an average, and back.
TEST_F(TowerMemoryTest, SharedLayoutsGiveTheBitsOfSeparateOnes) {
  for (const bool winograd : {true, false}) {
    const auto backend = MakeCpuBackend(1, {.winograd = winograd});
    Tower shared(graph_, *backend, kSeed);
    shared.Prepare(4, Mode::kTraining);
    shared.Prepare(6, Mode::kTraining);
    shared.Prepare(6, Mode::kInference);
    Arena weights = RandomWeights(graph_), average = RandomWeights(graph_);
    for (float& w : average.floats()) w *= 0.75f;
    const auto run = [&](Tower& tower, int64_t count, Mode mode, const Arena& of, int64_t version) {
      const SampleBatch batch(graph_, version < 0 ? 3 : version, count);
      const LossSums sums = ForwardOf(tower, batch.Input(), mode, of, version);
      std::vector<float> result{static_cast<float>(sums.loss)};
      if (mode == Mode::kInference) return result;
      Arena gradients(graph_.arena_floats());
      tower.Backward(1, of.floats(), gradients.floats(), nullptr);
      result.insert(result.end(), gradients.floats().begin(), gradients.floats().end());
      return result;
    };
    const auto compare = [&](int64_t count, Mode mode, const Arena& of, int64_t version) {
      Tower alone(graph_, *backend, kSeed);
      alone.Prepare(count, mode);
      EXPECT_EQ(run(shared, count, mode, of, version), run(alone, count, mode, of, version))
          << count << " version " << version;
    };
    for (int64_t version = 0; version < 3; ++version) {
      compare(4, Mode::kTraining, weights, version);
      compare(6, Mode::kTraining, weights, version);
      compare(6, Mode::kInference, average, -1 - version);
      compare(6, Mode::kInference, weights, version);
      compare(4, Mode::kTraining, weights, version);
      for (float& w : weights.floats()) w *= 1.25f;
      for (float& w : average.floats()) w *= 1.5f;
    }
  }
}

// Two towers of one backend have different weights with the same version number.
TEST_F(TowerMemoryTest, TwoTowersShareNothing) {
  Tower other(graph_, *backend_, kSeed);
  tower_.Prepare(4, Mode::kInference);
  other.Prepare(4, Mode::kInference);
  const Arena weights = RandomWeights(graph_);
  Arena smaller = RandomWeights(graph_);
  for (float& w : smaller.floats()) w *= 0.5f;
  const SampleBatch batch(graph_, 0, 4);
  const auto loss = [&](Tower& tower, const Arena& of, int64_t version) {
    return ForwardOf(tower, batch.Input(), Mode::kInference, of, version).loss;
  };
  // A new tower without cached copies gives the expected results.
  Tower fresh(graph_, *backend_, kSeed);
  fresh.Prepare(4, Mode::kInference);
  const double of_weights = loss(fresh, weights, 1), of_smaller = loss(fresh, smaller, 2);
  ASSERT_NE(of_weights, of_smaller);
  EXPECT_EQ(loss(tower_, weights, 7), of_weights);
  EXPECT_EQ(loss(other, smaller, 7), of_smaller);
  EXPECT_EQ(loss(tower_, weights, 7), of_weights);
}

}  // namespace
}  // namespace muster
