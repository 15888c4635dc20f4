#include "ps/update/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/base/random.h"
#include "common/config/build_graph.h"
#include "ps/update/average_gradient.h"
#include "ps/update/initializer.h"
#include "tests/job/test_job.h"
#include "tests/ps/update_run.h"

namespace muster {
namespace {

using testing::ParseOptimizer;
using testing::UpdateRun;

float Value(uint32_t stream, size_t i) {
  return ToUniform(RandomStream(1, RandomPurpose::kSynthetic, stream, 0, i).Block(0)[0]) - 0.5f;
}

// Variables of various kinds, each with 32 floats.
std::vector<Variable> SomeVariables() {
  std::vector<Variable> variables;
  for (const auto kind : {Variable::Kind::kWeights, Variable::Kind::kBias, Variable::Kind::kScale,
                          Variable::Kind::kShift, Variable::Kind::kStatistic}) {
    Variable variable;
    variable.kind = kind;
    variable.offset = variables.size() * 32;
    variable.count = 30;
    variable.statistic_momentum = 0.25f;
    variables.push_back(variable);
  }
  return variables;
}

std::vector<float> DecaysOf(const std::vector<Segment>& segments) {
  std::vector<float> decays;
  for (size_t at = 0; at < 160; at += 32) decays.push_back(SegmentAt(segments, at)->weight_decay);
  return decays;
}

TEST(Segments, DecayIsTheVariablesOwnOrTheOptimizers) {
  std::vector<Variable> variables = SomeVariables();
  config::Optimizer optimizer = ParseOptimizer("weight_decay: 0.5");
  using Decays = std::vector<float>;
  EXPECT_EQ(DecaysOf(CutSegments(variables, 160, optimizer)), (Decays{0.5f, 0.5f, 0.5f, 0.5f, 0}));
  optimizer.set_decay_norm_and_bias(false);
  EXPECT_EQ(DecaysOf(CutSegments(variables, 160, optimizer)), (Decays{0.5f, 0, 0, 0, 0}));
  variables[0].weight_decay = 0;
  variables[1].weight_decay = 2;
  EXPECT_EQ(DecaysOf(CutSegments(variables, 160, optimizer)), (Decays{0, 2, 0, 0, 0}));
}

TEST(Segments, CoverTheArenaAndJoinWhatIsAlike) {
  const std::vector<Segment> segments =
      CutSegments(SomeVariables(), 176, ParseOptimizer("weight_decay: 0.5"));
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[0].begin, 0u);
  EXPECT_EQ(segments[0].end, 128u);
  EXPECT_EQ(segments[0].kind, Segment::Kind::kTrained);
  EXPECT_EQ(segments[1].begin, 128u);
  EXPECT_EQ(segments[1].end, 176u);
  EXPECT_EQ(segments[1].kind, Segment::Kind::kStatistic);
  EXPECT_EQ(segments[1].statistic_momentum, 0.25f);
}

TEST(Segments, AMultiplierOfZeroFreezes) {
  std::vector<Variable> variables = SomeVariables();
  variables[1].learning_rate_multiplier = 0;
  variables[1].weight_decay = 3;
  const std::vector<Segment> segments = CutSegments(variables, 160, {});
  ASSERT_EQ(segments.size(), 4u);
  EXPECT_EQ(segments[1].kind, Segment::Kind::kFrozen);
  UpdateRun run(ParseOptimizer("type: ADAM weight_decay: 0.5"), std::vector<float>(160, 1.0f),
                segments);
  ASSERT_TRUE(run.Step(1, 0.5, std::vector<float>(160, 1.0f)));
  EXPECT_NE(run.weights[31], 1.0f);
  for (size_t i = 32; i < 64; ++i) ASSERT_EQ(run.weights[i], 1.0f);
  EXPECT_NE(run.weights[64], 1.0f);
}

// w + 0.25 (s - w), regardless of the optimizer, learning rate, decay and clipping.
TEST(Update, StatisticsFollowTheBatch) {
  UpdateRun run(ParseOptimizer("type: MOMENTUM weight_decay: 0.5 clip_value: 0.001"),
                std::vector<float>(160, 1.0f), CutSegments(SomeVariables(), 160, {}));
  ASSERT_TRUE(run.Step(1, 100, std::vector<float>(160, 5.0f), 64, 0.5f));
  for (size_t i = 128; i < 160; ++i) ASSERT_EQ(run.weights[i], 2.0f);
  ASSERT_TRUE(run.Step(2, 0, std::vector<float>(160, 0.0f)));
  for (size_t i = 128; i < 160; ++i) ASSERT_EQ(run.weights[i], 1.5f);
}

TEST(Update, ClipsEachValue) {
  UpdateRun run(ParseOptimizer("type: SGD clip_value: 0.25"), std::vector<float>(32),
                {{.begin = 0, .end = 32}});
  std::vector<float> gradient(32);
  gradient[0] = 0.125f;
  gradient[1] = 7;
  gradient[2] = -7;
  gradient[3] = 0.25f;
  gradient[31] = -0.2500001f;
  ASSERT_TRUE(run.Step(1, 1, gradient));
  EXPECT_EQ(run.weights[0], -0.125f);
  EXPECT_EQ(run.weights[1], -0.25f);
  EXPECT_EQ(run.weights[2], 0.25f);
  EXPECT_EQ(run.weights[3], -0.25f);
  EXPECT_EQ(run.weights[31], 0.25f);
}

// Weights fall by 1 a step from 0, so the average after n steps is
// -Σ_{k=1..n} (1 - d) d^(n-k) k = -(n - d (1 - d^n) / (1 - d)).
TEST(Update, AverageHasItsClosedForm) {
  const double d = 0.75;
  UpdateRun run(ParseOptimizer("type: SGD ema_decay: 0.75"), std::vector<float>(160),
                CutSegments(SomeVariables(), 160, {}));
  for (int n = 1; n <= 20; ++n) {
    ASSERT_TRUE(run.Step(n, 1, std::vector<float>(160, 1.0f)));
    const double expected = -(n - d * (1 - std::pow(d, n)) / (1 - d));
    for (size_t i = 0; i < 128; ++i) ASSERT_NEAR(run.average[i], expected, 1e-5 * n) << n;
    // Running statistics are averages already, so they are copied.
    for (size_t i = 128; i < 160; ++i) ASSERT_EQ(run.average[i], run.weights[i]);
  }
}

// d w + (1 - d) w is not exactly w.
TEST(Update, TheAverageOfFrozenWeightsIsThem) {
  UpdateRun run(ParseOptimizer("type: SGD ema_decay: 0.9999"), std::vector<float>(64, 0.3f),
                {{.begin = 0, .end = 64, .kind = Segment::Kind::kFrozen}});
  for (int n = 1; n <= 20; ++n) ASSERT_TRUE(run.Step(n, 1, std::vector<float>(64, 1.0f)));
  EXPECT_EQ(run.weights, std::vector<float>(64, 0.3f));
  EXPECT_EQ(run.average, run.weights);
}

// The update uses the sum of the tree's parts, added from left to right.
TEST(Update, OfSeveralPartsIsThatOfTheirTreeSum) {
  constexpr size_t kSize = 1200;
  const TreeSum tree({{0, 0}, {0, 1}, {1, 1}}, 4);
  std::vector<float> parts[3], sum(kSize), weights(kSize), next(kSize);
  for (uint32_t p = 0; p < 3; ++p) parts[p].resize(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    for (uint32_t p = 0; p < 3; ++p) parts[p][i] = Value(p, i);
    weights[i] = Value(3, i);
    sum[i] = (parts[0][i] + parts[1][i]) + parts[2][i];
  }
  const std::vector<Segment> segments{{.begin = 0, .end = kSize, .weight_decay = 0.1f}};
  ChunkGradient gradient{
      &tree, wire::FP32, {parts[0].data() + 16, parts[1].data() + 16, parts[2].data() + 16}};
  ChunkUpdate update{.chunk = {16, kSize, 0, 0},
                     .gradient = std::move(gradient),
                     .averaged = {},
                     .rule = Optimizer({}, *AvailableKernels().back()).RuleFor(1, 0.1),
                     .segments = segments,
                     .weights = weights,
                     .next_weights = next,
                     .state = {},
                     .average = {}};
  ASSERT_TRUE(ApplyUpdate(update));
  UpdateRun once({}, weights, segments);
  ASSERT_TRUE(once.Step(1, 0.1, sum));
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(next[i], 0);  // not of this chunk
  for (size_t i = 16; i < kSize; ++i) ASSERT_EQ(next[i], once.weights[i]) << i;
  // Stored past the cache, to an unaligned address.
  std::vector<float> streamed(kSize + 3);
  update.next_weights = std::span(streamed).subspan(3, kSize);
  update.stream = true;
  ASSERT_TRUE(ApplyUpdate(update));
  EXPECT_TRUE(std::ranges::equal(update.next_weights, next));
}

// 3 and 4 among zeros have the norm 5, wherever they are. Statistics and frozen variables do not
// count.
TEST(GradientNorm, IsEuclideanOverTrainedVariables) {
  std::vector<Variable> variables = SomeVariables();
  variables[3].learning_rate_multiplier = 0;
  const std::vector<Segment> segments = CutSegments(variables, 160, {});
  const TreeSum tree({{0, 0}}, 1);
  for (const size_t place : {size_t{0}, size_t{15}, size_t{16}, size_t{95}}) {
    std::vector<float> gradient(160), averaged(160, 9.0f);
    gradient[place] = 3;
    gradient[40] = -4;
    gradient[100] = 100;
    gradient[140] = 100;
    std::vector<double> squares(10, 9.0);
    ASSERT_TRUE(AverageGradient({.kernels = *AvailableKernels().back(),
                                 .chunk = {0, 160, 0, 0},
                                 .gradient = {&tree, wire::FP32, {gradient.data()}},
                                 .segments = segments,
                                 .averaged = averaged,
                                 .line_squares = squares}));
    EXPECT_EQ(averaged, gradient);
    EXPECT_EQ(GradientNorm(squares), 5.0) << place;
  }
}

TEST(GradientNorm, BitsDoNotDependOnChunksAndTheValueIsPrecise) {
  constexpr size_t kSize = 100000 / 16 * 16;
  const TreeSum tree({{0, 0}}, 1);
  const std::vector<Segment> segments{{.begin = 0, .end = kSize}};
  std::vector<float> gradient(kSize), averaged(kSize);
  long double sum = 0;
  for (size_t i = 0; i < kSize; ++i) {
    gradient[i] = Value(0, i) * std::exp2(static_cast<float>(i % 40));
    sum += static_cast<long double>(gradient[i]) * gradient[i];
  }
  double first = 0;
  for (const size_t chunk : {size_t{16}, size_t{1008}, size_t{4096}, kSize}) {
    std::vector<double> squares(kSize / 16);
    for (size_t begin = 0; begin < kSize; begin += chunk) {
      ASSERT_TRUE(AverageGradient({.kernels = *AvailableKernels().back(),
                                   .chunk = {begin, std::min(kSize, begin + chunk), 0, 0},
                                   .gradient = {&tree, wire::FP32, {gradient.data() + begin}},
                                   .segments = segments,
                                   .averaged = averaged,
                                   .line_squares = squares}));
    }
    const double norm = GradientNorm(squares);
    if (first == 0) first = norm;
    EXPECT_EQ(std::bit_cast<uint64_t>(norm), std::bit_cast<uint64_t>(first)) << chunk;
    EXPECT_NEAR(norm, std::sqrt(static_cast<double>(sum)), 1e-14 * norm);
  }
}

TEST(Initializer, HasTheRightMomentsAndIsAFunctionOfTheSeed) {
  config::Model model = testing::SmallConfig(1, 1).model();
  auto* dense = model.mutable_layer(0)->mutable_dense();
  dense->set_units(20000);
  const auto moments = [&](config::Initializer::Type type, uint64_t seed, double* mean,
                           double* stddev, double* largest) {
    dense->mutable_weights()->mutable_initializer()->set_type(type);
    dense->mutable_weights()->mutable_initializer()->set_stddev(0.05f);
    const Graph graph = BuildGraph(model, {1, 1, 3});
    std::vector<float> arena(graph.arena_floats(), 7.0f);
    InitializeWeights(graph.layout(), seed, arena);
    const Variable& v = graph.variables()[0];
    double sum = 0, squares = 0;
    *largest = 0;
    for (size_t i = 0; i < v.count; ++i) {
      sum += arena[i];
      squares += static_cast<double>(arena[i]) * arena[i];
      *largest = std::max<double>(*largest, std::abs(arena[i]));
    }
    *mean = sum / static_cast<double>(v.count);
    *stddev = std::sqrt(squares / static_cast<double>(v.count) - *mean * *mean);
    EXPECT_EQ(arena[graph.variables()[1].offset], 0.0f);
    return arena;
  };
  double mean, stddev, largest;
  const auto first = moments(config::Initializer::TRUNCATED_NORMAL, 1, &mean, &stddev, &largest);
  EXPECT_NEAR(mean, 0, 0.001);
  EXPECT_NEAR(stddev, 0.05 * 0.8796, 0.0005);  // of a normal distribution truncated at 2 stddev
  EXPECT_LE(largest, 0.1);
  EXPECT_EQ(first, moments(config::Initializer::TRUNCATED_NORMAL, 1, &mean, &stddev, &largest));
  EXPECT_NE(first, moments(config::Initializer::TRUNCATED_NORMAL, 2, &mean, &stddev, &largest));
  moments(config::Initializer::HE, 1, &mean, &stddev, &largest);
  EXPECT_NEAR(stddev, std::sqrt(2.0 / 3), 0.01);
  EXPECT_GT(largest, 2.5 * std::sqrt(2.0 / 3));  // not truncated
  moments(config::Initializer::XAVIER, 1, &mean, &stddev, &largest);
  EXPECT_NEAR(stddev, std::sqrt(6.0 / 20003) / std::sqrt(3.0), 1e-4);
  EXPECT_LE(largest, std::sqrt(6.0 / 20003));
}

// Known answers of Philox4x32-10, published with the Random123 library (kat_vectors).
TEST(Philox, KnownAnswers) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace muster
