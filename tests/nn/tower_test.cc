// Whole networks: against the oracle, against finite differences, and what the tower promises about
// hooks, versions, batch sizes and bits.
#include "worker/nn/tower.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/op_case.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster {
namespace {

struct Network {
  const char* name;
  Shape input;
  const char* layers;
};

const Network kNetworks[] = {
    {"Tutorial", {12, 12, 3}, R"(
       layer { name: "conv1" conv2d { filters: 16 kernel: 5 padding: SAME } }
       layer { name: "relu1" relu {} }
       layer { name: "pool1" max_pool { kernel: 3 stride: 2 padding: SAME } }
       layer { name: "norm1" lrn { depth_radius: 4 bias: 1 alpha: 0.1 beta: 0.75 } }
       layer { name: "conv2" conv2d { filters: 16 kernel: 5 padding: SAME } }
       layer { name: "relu2" relu {} }
       layer { name: "norm2" lrn { depth_radius: 4 bias: 1 alpha: 0.1 beta: 0.75 } }
       layer { name: "pool2" max_pool { kernel: 3 stride: 2 padding: SAME } }
       layer { name: "local3" dense { units: 24 } }
       layer { name: "relu3" relu {} }
       layer { name: "logits" dense { units: 10 } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    {"Dropout", {6, 7, 1}, R"(
       layer { name: "conv1" conv2d { filters: 5 kernel: 3 } }
       layer { name: "conv2" conv2d { filters: 8 kernel: 2 stride: 2 padding: SAME } }
       layer { name: "relu2" relu {} }
       layer { name: "flat" flatten {} }
       layer { name: "drop0" dropout { rate: 0.2 } }
       layer { name: "dense1" dense { units: 20 } }
       layer { name: "relu1" relu {} }
       layer { name: "drop1" dropout { rate: 0.5 } }
       layer { name: "dense2" dense { units: 12 } }
       layer { name: "drop2" dropout { rate: 0.3 } }
       layer { name: "relu3" relu {} }
       layer { name: "dense3" dense { units: 3 use_bias: false } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    // Layers without variables first and relu in unusual places.
    {"Unusual", {9, 8, 4}, R"(
       layer { name: "norm" lrn { depth_radius: 1 alpha: 0.5 } }
       layer { name: "relu0" relu {} }
       layer { name: "avg" avg_pool { kernel: 3 stride: 1 padding: SAME } }
       layer { name: "conv" conv2d { filters: 8 kernel: 3 padding: SAME } }
       layer { name: "max" max_pool { kernel: 2 } }
       layer { name: "relu1" relu {} }
       layer { name: "relu2" relu {} }
       layer { name: "avg2" avg_pool { kernel: 2 padding: SAME } }
       layer { name: "relu3" relu {} }
       layer { name: "drop" dropout { rate: 0.25 } }
       layer { name: "logits" dense { units: 6 } }
       layer { name: "relu4" relu {} }
       layer { name: "loss" softmax_cross_entropy {} })"},
    // A block that keeps its shape, one that does not, and an output read three times.
    {"Residual", {8, 7, 3}, R"(
       layer { name: "conv1" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn1" batch_norm {} }
       layer { name: "relu1" relu {} }
       layer { name: "conv2" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn2" batch_norm {} }
       layer { name: "relu2" relu {} }
       layer { name: "conv3" conv2d { filters: 8 kernel: 3 padding: SAME use_bias: false } }
       layer { name: "bn3" batch_norm {} }
       layer { name: "add3" input: ["bn3", "relu1"] add {} }
       layer { name: "relu3" relu {} }
       layer { name: "conv4" conv2d { filters: 16 kernel: 3 stride: 2 padding: SAME use_bias: false } }
       layer { name: "bn4" batch_norm {} }
       layer { name: "short" input: "relu3" conv2d { filters: 16 kernel: 1 stride: 2
                                                     use_bias: false } }
       layer { name: "bn_short" batch_norm {} }
       layer { name: "add4" input: ["bn4", "bn_short"] add {} }
       layer { name: "relu4" relu {} }
       layer { name: "bn_more" batch_norm {} }
       layer { name: "relu_more" relu6 {} }
       layer { name: "three" input: ["relu4", "relu_more", "relu4"] add {} }
       layer { name: "pool" global_avg_pool {} }
       layer { name: "logits" dense { units: 5 } }
       layer { name: "loss" softmax_cross_entropy {} })"},
    // Relus, fused and not, whose outputs go to several readers of different kinds; the data read
    // twice; sums without normalisation; layers that move nothing between them.
    {"Branches", {6, 6, 4}, R"(
       layer { name: "conv1" conv2d { filters: 6 kernel: 3 padding: SAME } }
       layer { name: "relu1" relu {} }
       layer { name: "side" input: "data" conv2d { filters: 6 kernel: 1 } }
       layer { name: "cat" input: ["relu1", "data", "side"] concat {} }
       layer { name: "conv2" conv2d { filters: 6 kernel: 3 padding: SAME groups: 2 } }
       layer { name: "add2" input: ["conv2", "relu1", "side"] add {} }
       layer { name: "relu2" relu {} }
       layer { name: "max" input: "relu2" max_pool { kernel: 3 stride: 1 padding: SAME } }
       layer { name: "avg" input: "relu2" avg_pool { kernel: 3 stride: 1 padding: SAME } }
       layer { name: "relu6" relu6 {} }
       layer { name: "add3" input: ["max", "relu6"] add {} }
       layer { name: "relu3" relu {} }
       layer { name: "relu3b" relu {} }
       layer { name: "drop3" dropout { rate: 0.2 } }
       layer { name: "add4" input: ["drop3", "relu3b"] add {} }
       layer { name: "flat" flatten {} }
       layer { name: "dense1" input: "flat" dense { units: 9 } }
       layer { name: "drop" input: "flat" dropout { rate: 0.25 } }
       layer { name: "dense2" dense { units: 9 } }
       layer { name: "relu5" relu {} }
       layer { name: "soft" softmax {} }
       layer { name: "twice" input: ["dense1", "dense1"] add {} }
       layer { name: "cat2" input: ["soft", "twice", "relu5"] concat {} }
       layer { name: "logits" dense { units: 4 } }
       layer { name: "loss" softmax_cross_entropy { label_smoothing: 0.1 } })"},
    // Mobile blocks: depthwise, relu6 in the norm and after a convolution, a norm of the data.
    {"Mobile", {7, 7, 3}, R"(
       layer { name: "bn0" batch_norm { running_variance: BIASED } }
       layer { name: "conv1" conv2d { filters: 8 kernel: 3 stride: 2 padding: SAME } }
       layer { name: "relu1" relu6 {} }
       layer { name: "expand" conv2d { filters: 24 kernel: 1 use_bias: false } }
       layer { name: "bn1" batch_norm {} }
       layer { name: "relu2" relu6 {} }
       layer { name: "depthwise" conv2d { filters: 24 kernel: 3 padding: SAME groups: 24
                                          use_bias: false } }
       layer { name: "bn2" batch_norm {} }
       layer { name: "relu3" relu6 {} }
       layer { name: "project" conv2d { filters: 8 kernel: 1 use_bias: false } }
       layer { name: "bn3" batch_norm {} }
       layer { name: "add" input: ["relu1", "bn3"] add {} }
       layer { name: "relu4" relu6 {} }
       layer { name: "pool" global_avg_pool {} }
       layer { name: "logits" dense { units: 3 } }
       layer { name: "loss" mean_squared_error {} })"},
    {"OneLayer", {1, 1, 7}, R"(
       layer { name: "logits" dense { units: 4 } }
       layer { name: "loss" softmax_cross_entropy {} })"},
};

constexpr uint64_t kSeed = 11;

// `count` samples of the network's dataset, from sample `first` on.
struct Batch {
  Batch(const Graph& graph, int64_t first, int64_t count)
      : images(count * graph.input_shape().elements()) {
    const int64_t elements = graph.input_shape().elements();
    for (int64_t n = 0; n < count; ++n) {
      const auto pixels = RandomFloats(elements, 1000 + static_cast<uint32_t>(first + n));
      std::copy(pixels.begin(), pixels.end(), images.floats().begin() + n * elements);
      labels.push_back(static_cast<int32_t>((first + n) * 5 % graph.classes()));
      ids.push_back(first + n);
    }
  }
  TowerInput Input() const {
    return {static_cast<int64_t>(ids.size()), images.floats().data(), labels.data(), ids.data(), 3};
  }
  Arena images;
  std::vector<int32_t> labels;
  std::vector<int64_t> ids;
};

Arena RandomWeights(const Graph& graph) {
  Arena weights(graph.arena_floats());
  for (const Variable& v : graph.variables()) {
    const auto values = RandomFloats(v.count, static_cast<uint32_t>(v.offset) + 7);
    // A normalisation's scale lies around 1, a variance above zero.
    const bool around_one = v.kind == Variable::Kind::kScale || v.name.ends_with("running_variance");
    const float scale = around_one ? 0.5f : std::sqrt(3.0f / static_cast<float>(v.fan_in));
    for (size_t i = 0; i < v.count; ++i) {
      weights.floats()[v.offset + i] = scale * values[i] + (around_one ? 1.0f : 0.0f);
    }
  }
  return weights;
}

// Forward and backward on prepared counts; counts weight versions by itself.
class Trainer {
 public:
  explicit Trainer(const Graph& graph, int threads = 1)
      : graph_(graph), backend_(MakeCpuBackend(threads)), tower_(graph, *backend_, kSeed) {}

  Arena Step(const Batch& batch, const Arena& weights, float scale = 1) {
    tower_.Prepare(batch.Input().count, Mode::kTraining);
    sums = tower_.Forward(batch.Input(), Mode::kTraining, weights.floats(), version_++, nullptr);
    Arena gradients(graph_.arena_floats());
    tower_.Backward(scale, weights.floats(), gradients.floats(), nullptr);
    return gradients;
  }
  LossSums Evaluate(const Batch& batch, const Arena& weights) {
    tower_.Prepare(batch.Input().count, Mode::kInference);
    return tower_.Forward(batch.Input(), Mode::kInference, weights.floats(), version_++, nullptr);
  }
  Tower& tower() { return tower_; }
  LossSums sums;

 private:
  const Graph& graph_;
  std::unique_ptr<Backend> backend_;
  Tower tower_;
  int64_t version_ = 0;
};

std::vector<float> Bits(const Arena& arena) {
  return {arena.floats().begin(), arena.floats().end()};
}

// Per variable, so that large ones do not hide small ones.
void ExpectClose(const Graph& graph, const Arena& got, std::span<const double> expected,
                 double tolerance) {
  for (const Variable& v : graph.variables()) {
    EXPECT_LE(RelativeL2(got.floats().subspan(v.offset, v.count),
                         expected.subspan(v.offset, v.count)),
              tolerance)
        << v.name;
  }
}

class TowerTest : public testing::TestWithParam<Network> {
 protected:
  const Graph graph_ = reference::MakeGraph(GetParam().layers, GetParam().input);
  const Arena weights_ = RandomWeights(graph_);
};

TEST_P(TowerTest, MatchesTheReferenceInTrainingAndInference) {
  for (const int threads : {1, 2}) {
    Trainer trainer(graph_, threads);
    for (const int64_t count : {5, 1, 2}) {
      const Batch batch(graph_, 10, count);
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

TEST_P(TowerTest, GradientsAreThoseOfFiniteDifferences) {
  Trainer trainer(graph_);
  const Batch batch(graph_, 0, 2);
  const Arena gradients = trainer.Step(batch, weights_);
  constexpr float kStep = 1e-2f;
  double checked = 0, off = 0;
  for (const Variable& v : graph_.variables()) {
    if (v.kind == Variable::Kind::kStatistic) continue;
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
  // A kink of a relu or a maximum may lie between the two points: so in sum only.
  EXPECT_LE(off, 0.02 * checked);
}

TEST_P(TowerTest, RepeatsTheSameBitsWhateverRanBetween) {
  Trainer trainer(graph_), fresh(graph_);
  const Batch five(graph_, 0, 5), three(graph_, 5, 3), eight(graph_, 20, 8);
  const auto first = Bits(trainer.Step(five, weights_));
  const double loss = trainer.sums.loss;
  trainer.Step(three, weights_);
  trainer.Evaluate(eight, weights_);
  trainer.Step(eight, weights_);
  EXPECT_EQ(first, Bits(trainer.Step(five, weights_)));
  EXPECT_EQ(loss, trainer.sums.loss);
  fresh.tower().Prepare(8, Mode::kTraining);  // a larger workspace, other addresses
  EXPECT_EQ(first, Bits(fresh.Step(five, weights_)));
}

TEST_P(TowerTest, SlicesAddUpToTheWholeBatch) {
  for (const Layer& layer : graph_.layers()) {
    if (layer.scale >= 0) GTEST_SKIP() << "batch norm: statistics are per slice";
  }
  Trainer trainer(graph_);
  const Batch whole(graph_, 0, 13);
  const auto expected = ToDoubles(trainer.Step(whole, weights_, 1.0f / 13).floats());
  const LossSums sums = trainer.sums;
  Arena sum(graph_.arena_floats());
  LossSums added;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 4}, {4, 4}, {8, 5}}) {
    const Arena part = trainer.Step(Batch(graph_, first, count), weights_, 1.0f / 13);
    for (size_t i = 0; i < sum.floats().size(); ++i) sum.floats()[i] += part.floats()[i];
    added.loss += trainer.sums.loss;
    added.correct += trainer.sums.correct;
  }
  ExpectClose(graph_, sum, expected, 1e-5);
  EXPECT_NEAR(added.loss, sums.loss, 1e-5 * sums.loss);
  EXPECT_EQ(added.correct, sums.correct);
}

TEST_P(TowerTest, AnInferenceInBetweenDoesNotDisturbBackward) {
  Trainer trainer(graph_);
  const Batch batch(graph_, 0, 4), other(graph_, 8, 4);
  const auto expected = Bits(trainer.Step(batch, weights_));
  trainer.Evaluate(other, weights_);  // prepares
  Tower& tower = trainer.tower();
  tower.Forward(batch.Input(), Mode::kTraining, weights_.floats(), 100, nullptr);
  tower.Forward(other.Input(), Mode::kInference, weights_.floats(), 100, nullptr);
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
    Trainer trainer(graph_);
    Tower& tower = trainer.tower();
    const Batch batch(graph_, 0, count);
    tower.Prepare(count, Mode::kTraining);

    // Before its hook a layer's weights are not there; after it the caller may reuse them.
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
    const LossSums sums = tower.Forward(batch.Input(), Mode::kTraining, weights.floats(), 1,
                                        [&](int layer) {
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
        count == 0 ? Arena(graph_.arena_floats()) : Trainer(graph_).Step(batch, weights_);
    EXPECT_EQ(at_hook, Bits(expected));
    // The padding between variables is left alone.
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
  Trainer trainer(graph_);
  const Batch batch(graph_, 0, 3);
  trainer.Step(batch, weights_);
  const double before = trainer.sums.loss;
  Arena other = RandomWeights(graph_);
  for (float& w : other.floats()) w *= 0.5f;
  const auto changed = Bits(trainer.Step(batch, other));
  EXPECT_NE(before, trainer.sums.loss);
  EXPECT_EQ(changed, Bits(Trainer(graph_).Step(batch, other)));
}

INSTANTIATE_TEST_SUITE_P(Networks, TowerTest, testing::ValuesIn(kNetworks),
                         [](const auto& info) { return std::string(info.param.name); });

// The server adds up what the slices deliver: with loss_scale 1 / N that must be the mean of the
// slices' statistics, each weighted with its samples.
TEST(TowerStatisticsTest, SlicesDeliverTheirShareOfTheBatchsStatistic) {
  const Graph graph = reference::MakeGraph(R"(
      layer { name: "bn" batch_norm {} }
      layer { name: "logits" dense { units: 2 } }
      layer { name: "loss" softmax_cross_entropy {} })", {2, 3, 5});
  const Arena weights = RandomWeights(graph);
  Trainer trainer(graph);
  const Layer& norm = graph.layers()[0];
  constexpr int64_t kBatch = 12;
  reference::Doubles mean(5), variance(5), sum(graph.arena_floats());
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, 4}, {7, 5}}) {
    Batch slice(graph, first, count);
    slice.labels[0] = -1;  // no weight in the loss, but a value like all others here
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
  const Arena whole = trainer.Step(Batch(graph, 0, kBatch), weights, 1.0f / kBatch);
  for (size_t c = 0; c < 5; ++c) {
    EXPECT_NEAR(whole.floats()[graph.variables()[norm.running_mean].offset + c], mean[c], 1e-6);
  }
}

TEST(TowerPredictionsTest, AreTheLargestLogits) {
  const Graph graph = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights = RandomWeights(graph);
  const Batch batch(graph, 0, 6);
  std::vector<int32_t> predictions(6, -1);
  TowerInput input = batch.Input();
  input.predictions = predictions.data();
  const auto backend = MakeCpuBackend(1);
  Tower tower(graph, *backend, kSeed);
  tower.Prepare(6, Mode::kInference);
  tower.Forward(input, Mode::kInference, weights.floats(), 1, nullptr);
  const auto expected =
      reference::Run(graph, ToDoubles(weights.floats()), ToDoubles(batch.images.floats()),
                     batch.labels, {.training = false}, 1);
  for (size_t n = 0; n < 6; ++n) {
    const auto row = expected.logits.begin() + static_cast<int64_t>(n) * 10;
    EXPECT_EQ(predictions[n], std::max_element(row, row + 10) - row);
  }
}

TEST(TowerFailureTest, ANanImageGivesALossThatIsNotFinite) {
  const Graph graph = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights = RandomWeights(graph);
  for (const float bad : {NAN, INFINITY}) {
    Batch batch(graph, 0, 2);
    batch.images.floats()[100] = bad;
    Trainer trainer(graph);
    trainer.Step(batch, weights);
    EXPECT_FALSE(std::isfinite(trainer.sums.loss));
  }
}

}  // namespace
}  // namespace muster
