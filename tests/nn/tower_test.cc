// Whole networks: against the oracle and finite differences. Also checks hooks, versions, batch
// sizes and bits.
#include "worker/nn/tower.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/expect_flips.h"
#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"

namespace muster {
namespace {

std::vector<float> Bits(const Arena& arena) {
  return {arena.floats().begin(), arena.floats().end()};
}

// Per variable, so that large ones do not hide small ones. What a frozen layer delivers is not
// used, but must not be a NaN, which would end the run.
void ExpectClose(const Graph& graph, const Arena& got, std::span<const double> expected,
                 double tolerance) {
  for (const Variable& v : graph.variables()) {
    if (graph.layers()[v.layer].frozen) {
      for (const float x : got.floats().subspan(v.offset, v.count)) EXPECT_TRUE(std::isfinite(x));
      continue;
    }
    EXPECT_LE(
        RelativeL2(got.floats().subspan(v.offset, v.count), expected.subspan(v.offset, v.count)),
        tolerance)
        << v.name;
  }
}

class TowerTest : public testing::TestWithParam<NetworkCase> {
 protected:
  const Graph graph_ = reference::MakeGraph(GetParam().layers, GetParam().input);
  const Arena weights_ = RandomWeights(graph_);
};

TEST_P(TowerTest, MatchesTheReferenceInTrainingAndInference) {
  for (const int threads : TestThreads()) {
    TowerRun trainer(graph_, threads);
    for (const int64_t count : {5, 1, 2}) {
      const SampleBatch batch(graph_, 10, count);
      reference::Context context{.seed = kSeed, .sample_ids = batch.ids, .epoch = 3};
      const auto expected =
          reference::Run(graph_, ToDoubles(weights_.floats()), ToDoubles(batch.images.floats()),
                         batch.labels, context, 0.125);
      const Arena got = trainer.Step(batch, weights_, 0.125f);
      EXPECT_NEAR(trainer.sums.loss, expected.loss, 1e-5 * std::abs(expected.loss));
      ExpectClose(graph_, got, expected.gradients, 1e-5);

      context.training = false;
      const auto inference =
          reference::Run(graph_, ToDoubles(weights_.floats()), ToDoubles(batch.images.floats()),
                         batch.labels, context, 1);
      EXPECT_NEAR(trainer.Evaluate(batch, weights_).loss, inference.loss,
                  1e-5 * std::abs(inference.loss));
    }
  }
}

TEST_P(TowerTest, FlipTakesTheMeanOfImagesAndMirrorImages) {
  for (const int threads : TestThreads()) {
    ExpectFlips(*MakeTestBackend(threads), graph_, weights_, ElementType::kFloat32);
  }
}

TEST_P(TowerTest, GradientsAreThoseOfFiniteDifferences) {
  TowerRun trainer(graph_);
  const SampleBatch batch(graph_, 0, 2);
  const Arena gradients = trainer.Step(batch, weights_);
  constexpr float kStep = 1e-2f;
  double checked = 0, off = 0;
  for (const Variable& v : graph_.variables()) {
    if (v.kind == Variable::Kind::kStatistic || v.learning_rate_multiplier == 0) continue;
    // The directional derivative along a random direction of each variable.
    const auto direction = RandomFloats(v.count, static_cast<uint32_t>(v.offset) + 99);
    const float length = kStep / std::sqrt(static_cast<float>(v.count));
    double losses[2], expected = 0;
    for (const int side : {0, 1}) {
      Arena moved = RandomWeights(graph_);
      for (size_t i = 0; i < v.count; ++i) {
        moved.floats()[v.offset + i] += (side == 0 ? -length : length) * direction[i];
      }
      trainer.Step(batch, moved);
      losses[side] = trainer.sums.loss;
    }
    for (size_t i = 0; i < v.count; ++i) {
      expected += 2.0 * length * direction[i] * gradients.floats()[v.offset + i];
    }
    checked += std::abs(expected);
    off += std::abs(losses[1] - losses[0] - expected);
  }
  // A kink of a relu or maximum may lie between the two points, so only the sum is checked.
  EXPECT_LE(off, 0.02 * checked);
}

TEST_P(TowerTest, RepeatsTheSameBitsWhateverRanBetween) {
  TowerRun trainer(graph_), fresh(graph_);
  const SampleBatch five(graph_, 0, 5), three(graph_, 5, 3), eight(graph_, 20, 8);
  const auto first = Bits(trainer.Step(five, weights_));
  const double loss = trainer.sums.loss;
  trainer.Step(three, weights_);
  trainer.Evaluate(eight, weights_);
  trainer.Step(eight, weights_);
  EXPECT_EQ(first, Bits(trainer.Step(five, weights_)));
  EXPECT_EQ(loss, trainer.sums.loss);
  fresh.tower().Prepare(8, Mode::kTraining);  // a larger workspace, at other addresses
  EXPECT_EQ(first, Bits(fresh.Step(five, weights_)));
}

// The gradient of the whole batch. Batch statistics are per slice, so with them the expected value
// is the sum over slices.
TEST_P(TowerTest, SlicesAddUpToTheBatch) {
  TowerRun trainer(graph_);
  bool normalises = false;
  for (const Layer& layer : graph_.layers()) normalises |= layer.running_mean >= 0;
  const auto run = [&](int64_t first, int64_t count) {
    const SampleBatch batch(graph_, first, count);
    return reference::Run(graph_, ToDoubles(weights_.floats()), ToDoubles(batch.images.floats()),
                          batch.labels, {.seed = kSeed, .sample_ids = batch.ids, .epoch = 3},
                          1.0 / 13);
  };
  auto expected = run(0, 13);
  if (normalises) expected = {.gradients = reference::Doubles(graph_.arena_floats())};
  Arena sum(graph_.arena_floats());
  LossSums added;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 4}, {4, 4}, {8, 5}}) {
    const Arena part = trainer.Step(SampleBatch(graph_, first, count), weights_, 1.0f / 13);
    for (size_t i = 0; i < sum.floats().size(); ++i) sum.floats()[i] += part.floats()[i];
    added.loss += trainer.sums.loss;
    added.correct += trainer.sums.correct;
    if (!normalises) continue;
    const auto slice = run(first, count);
    expected.loss += slice.loss;
    for (size_t i = 0; i < slice.gradients.size(); ++i) {
      expected.gradients[i] += slice.gradients[i];
    }
  }
  ExpectClose(graph_, sum, expected.gradients, 1e-5);
  EXPECT_NEAR(added.loss, expected.loss, 1e-5 * expected.loss);
  if (normalises) return;
  trainer.Step(SampleBatch(graph_, 0, 13), weights_, 1.0f / 13);
  EXPECT_EQ(added.correct, trainer.sums.correct);
}

TEST_P(TowerTest, AnInferenceInBetweenDoesNotDisturbBackward) {
  TowerRun trainer(graph_);
  const SampleBatch batch(graph_, 0, 4), other(graph_, 8, 4);
  const auto expected = Bits(trainer.Step(batch, weights_));
  trainer.Evaluate(other, weights_);  // prepares
  Tower& tower = trainer.tower();
  ForwardOf(tower, batch.Input(), Mode::kTraining, weights_, 100);
  ForwardOf(tower, other.Input(), Mode::kInference, weights_, 100);
  Arena gradients(graph_.arena_floats());
  tower.Backward(1, weights_.floats(), gradients.floats(), nullptr);
  EXPECT_EQ(expected, Bits(gradients));
}

TEST_P(TowerTest, CallsHooksInOrderOncePerLayerWithVariables) {
  std::vector<int> trained;
  for (size_t i = 0; i < graph_.layers().size(); ++i) {
    if (graph_.layers()[i].has_variables()) trained.push_back(static_cast<int>(i));
  }
  for (const int64_t count : {0, 2}) {
    TowerRun trainer(graph_);
    Tower& tower = trainer.tower();
    const SampleBatch batch(graph_, 0, count);
    tower.Prepare(count, Mode::kTraining);

    // Before its hook a layer's weights are not available, and after it the caller may reuse them.
    Arena weights(graph_.arena_floats()), gradients(graph_.arena_floats());
    const auto copy = [&](int layer, bool poison) {
      for (const Variable& v : graph_.variables()) {
        if (v.layer != layer) continue;
        for (size_t i = v.offset; i < v.offset + v.count; ++i) {
          weights.floats()[i] = poison ? NAN : weights_.floats()[i];
        }
      }
    };
    for (float& w : weights.floats()) w = NAN;
    for (float& g : gradients.floats()) g = NAN;
    std::vector<int> before, after;
    const LossSums sums =
        ForwardOf(tower, batch.Input(), Mode::kTraining, weights, 1, [&](int layer) {
          before.push_back(layer);
          copy(layer, false);
        });
    EXPECT_EQ(before, trained);
    EXPECT_TRUE(std::isfinite(sums.loss));
    std::vector<float> at_hook(graph_.arena_floats());
    tower.Backward(1, weights.floats(), gradients.floats(), [&](int layer) {
      after.push_back(layer);
      copy(layer, true);
      for (const Variable& v : graph_.variables()) {
        if (v.layer != layer) continue;
        for (size_t i = v.offset; i < v.offset + v.count; ++i) at_hook[i] = gradients.floats()[i];
      }
    });
    EXPECT_EQ(after, std::vector<int>(trained.rbegin(), trained.rend()));
    const Arena expected =
        count == 0 ? Arena(graph_.arena_floats()) : TowerRun(graph_).Step(batch, weights_);
    EXPECT_EQ(at_hook, Bits(expected));
    // The padding between variables is not written.
    std::vector<bool> padding(graph_.arena_floats(), true);
    for (const Variable& v : graph_.variables()) {
      for (size_t i = v.offset; i < v.offset + v.count; ++i) padding[i] = false;
    }
    for (size_t i = 0; i < padding.size(); ++i) {
      EXPECT_TRUE(!padding[i] || std::isnan(gradients.floats()[i])) << i;
    }
  }
}

TEST_P(TowerTest, SeesNewWeightsWithANewVersion) {
  TowerRun trainer(graph_);
  const SampleBatch batch(graph_, 0, 3);
  trainer.Step(batch, weights_);
  const double before = trainer.sums.loss;
  Arena other = RandomWeights(graph_);
  for (float& w : other.floats()) w *= 0.5f;
  const auto changed = Bits(trainer.Step(batch, other));
  EXPECT_NE(before, trainer.sums.loss);
  EXPECT_EQ(changed, Bits(TowerRun(graph_).Step(batch, other)));
}

INSTANTIATE_TEST_SUITE_P(Networks, TowerTest, testing::ValuesIn(kNetworks),
                         [](const auto& info) { return std::string(info.param.name); });

// The server adds up the slices' results. With loss_scale 1 / N the sum must be the mean of the
// slices' statistics, weighted by their samples.
TEST(TowerStatisticsTest, SlicesDeliverTheirShareOfTheBatchsStatistic) {
  const Graph graph = reference::MakeGraph(R"(
      layer { name: "bn" batch_norm {} }
      layer { name: "logits" dense { units: 2 } }
      layer { name: "loss" softmax_cross_entropy {} })",
                                           {2, 3, 5});
  const Arena weights = RandomWeights(graph);
  TowerRun trainer(graph);
  const Layer& norm = graph.layers()[0];
  constexpr int64_t kBatch = 12;
  reference::Doubles mean(5), variance(5), sum(graph.arena_floats());
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, 4}, {7, 5}}) {
    SampleBatch slice(graph, first, count);
    slice.labels[0] = -1;  // no weight in the loss, but still part of the statistics
    const Arena part = trainer.Step(slice, weights, 1.0f / kBatch);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.floats()[i];
    const auto expected = reference::Backward(
        norm, count, {ToDoubles(slice.images.floats())}, reference::Doubles(count * 30),
        {.weights = reference::Doubles(5, 1), .bias = reference::Doubles(5)});
    for (size_t c = 0; c < 5; ++c) {
      mean[c] += expected.mean[c] * static_cast<double>(count) / kBatch;
      variance[c] += expected.variance[c] * static_cast<double>(count) / kBatch;
    }
  }
  for (size_t c = 0; c < 5; ++c) {
    EXPECT_NEAR(sum[graph.variables()[norm.running_mean].offset + c], mean[c], 1e-6);
    EXPECT_NEAR(sum[graph.variables()[norm.running_variance].offset + c], variance[c], 1e-6);
  }
  // The mean of the slices' means is that of the whole batch.
  const Arena whole = trainer.Step(SampleBatch(graph, 0, kBatch), weights, 1.0f / kBatch);
  for (size_t c = 0; c < 5; ++c) {
    EXPECT_NEAR(whole.floats()[graph.variables()[norm.running_mean].offset + c], mean[c], 1e-6);
  }
}

TEST(TowerPredictionsTest, AreTheLargestLogitsAndLogitsAreThere) {
  const Graph graph = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights = RandomWeights(graph);
  const SampleBatch batch(graph, 0, 6);
  std::vector<int32_t> predictions(6, -1);
  TowerInput input = batch.Input();
  input.predictions = predictions.data();
  std::vector<float> logits(6 * 10, NAN);
  input.logits = logits.data();
  const auto backend = MakeTestBackend(1);
  Tower tower(graph, *backend, kSeed);
  tower.Prepare(6, Mode::kInference);
  ForwardOf(tower, input, Mode::kInference, weights, 1);
  const auto expected =
      reference::Run(graph, ToDoubles(weights.floats()), ToDoubles(batch.images.floats()),
                     batch.labels, {.training = false}, 1);
  for (size_t n = 0; n < 6; ++n) {
    const auto row = expected.logits.begin() + static_cast<int64_t>(n) * 10;
    EXPECT_EQ(predictions[n], std::max_element(row, row + 10) - row);
    for (size_t c = 0; c < 10; ++c) {
      EXPECT_NEAR(logits[10 * n + c], row[static_cast<int64_t>(c)], 1e-4) << n << ", " << c;
    }
  }
}

TEST(TowerClassWeights, CountInTrainingAlone) {
  const Graph graph = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights = RandomWeights(graph);
  const SampleBatch batch(graph, 0, 5);
  TowerRun plain(graph), weighted(graph, 1, {2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  const Arena expected = plain.Step(batch, weights, 2), got = weighted.Step(batch, weights, 1);
  EXPECT_EQ(weighted.sums.loss, 2 * plain.sums.loss);
  EXPECT_TRUE(std::ranges::equal(got.floats(), expected.floats()));
  EXPECT_EQ(weighted.Evaluate(batch, weights).loss, plain.Evaluate(batch, weights).loss);
}

TEST(TowerFailureTest, ANanImageGivesALossThatIsNotFinite) {
  const Graph graph = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights = RandomWeights(graph);
  for (const float bad : {NAN, INFINITY}) {
    SampleBatch batch(graph, 0, 2);
    batch.images.floats()[100] = bad;
    TowerRun trainer(graph);
    trainer.Step(batch, weights);
    EXPECT_FALSE(std::isfinite(trainer.sums.loss));
  }
}

}  // namespace
}  // namespace muster
