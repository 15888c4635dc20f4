#include "ps/update.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/random.h"
#include "ps/initializer.h"
#include "ps/schedule.h"
#include "tests/core/test_job.h"

namespace muster {
namespace {

float Value(uint32_t stream, size_t i) {
  return ToUniform(RandomStream(1, RandomPurpose::kSynthetic, stream, 0, i).Block(0)[0]) - 0.5f;
}

// One chunk of 3,000 floats in three segments of different decay; two parts.
struct UpdateCase {
  explicit UpdateCase(config::Optimizer::Type type) : tree({{0, 0}, {0, 1}}, 2) {
    for (size_t i = 0; i < kSize; ++i) {
      a[i] = Value(0, i);
      b[i] = Value(1, i);
      w[i] = Value(2, i);
      m[i] = Value(3, i);
    }
    update.chunk = {16, kSize, 0, 0};
    update.tree = &tree;
    update.parts = {a.data(), b.data()};
    update.rule = {type, 0.1f, 0.9f};
    update.segments = segments;
    update.weights = w;
    update.next_weights = next;
    update.momentum = m;
  }
  static constexpr size_t kSize = 3008;
  std::vector<float> a = std::vector<float>(kSize), b = a, w = a, m = a, next = a;
  std::vector<DecaySegment> segments{{0, 48, 0.0f}, {48, 1600, 0.004f}, {1600, kSize, 0.25f}};
  TreeSum tree;
  ChunkUpdate update;
};

float DecayAt(const UpdateCase& c, size_t i) {
  for (const DecaySegment& s : c.segments) {
    if (i < s.end) return s.weight_decay;
  }
  return 0;
}

// Each operation rounded by itself: what any instruction set must give. volatile keeps the
// compiler from contracting or reassociating.
TEST(Update, SgdBitForBit) {
  UpdateCase c(config::Optimizer::SGD);
  ASSERT_TRUE(ApplyUpdate(c.update));
  for (size_t i = 16; i < UpdateCase::kSize; ++i) {
    volatile float g = c.a[i - 16] + c.b[i - 16];
    volatile float decay = DecayAt(c, i) * c.w[i];
    volatile float total = g + decay;
    volatile float change = 0.1f * total;
    volatile float expected = c.w[i] - change;
    ASSERT_EQ(std::bit_cast<uint32_t>(c.next[i]), std::bit_cast<uint32_t>(float{expected})) << i;
  }
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(c.next[i], 0);  // not of this chunk
}

TEST(Update, MomentumBitForBit) {
  UpdateCase c(config::Optimizer::MOMENTUM);
  const std::vector<float> before = c.m;
  ASSERT_TRUE(ApplyUpdate(c.update));
  for (size_t i = 16; i < UpdateCase::kSize; ++i) {
    volatile float g = c.a[i - 16] + c.b[i - 16];
    volatile float decay = DecayAt(c, i) * c.w[i];
    volatile float total = g + decay;
    volatile float kept = 0.9f * before[i];
    volatile float m = kept + total;
    volatile float change = 0.1f * m;
    volatile float expected = c.w[i] - change;
    ASSERT_EQ(c.m[i], m) << i;
    ASSERT_EQ(c.next[i], expected) << i;
  }
}

TEST(Update, NoticesEveryNonfiniteValue) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const size_t at : {size_t{0}, size_t{1}, size_t{1040}, UpdateCase::kSize - 17}) {
      for (const auto type : {config::Optimizer::SGD, config::Optimizer::MOMENTUM}) {
        UpdateCase c(type);
        c.b[at] = bad;
        EXPECT_FALSE(ApplyUpdate(c.update));
        c.b[at] = 1;
        c.w[at + 16] = std::numeric_limits<float>::max();
        c.m[at + 16] = -std::numeric_limits<float>::max();
        c.update.rule.learning_rate = 10;
        if (type == config::Optimizer::MOMENTUM) {
          EXPECT_FALSE(ApplyUpdate(c.update));
        }
      }
    }
  }
}

TEST(LearningRate, Schedules) {
  config::LearningRate rate;
  rate.set_base(0.5);
  EXPECT_EQ(LearningRateAt(rate, 1000000), 0.5f);
  rate.set_type(config::LearningRate::STEP);
  rate.set_factor(0.1);
  rate.set_interval_samples(100);
  EXPECT_EQ(LearningRateAt(rate, 99), 0.5f);
  EXPECT_FLOAT_EQ(LearningRateAt(rate, 100), 0.05f);
  EXPECT_FLOAT_EQ(LearningRateAt(rate, 250), 0.005f);
  rate.set_type(config::LearningRate::EXPONENTIAL);
  EXPECT_FLOAT_EQ(LearningRateAt(rate, 50), static_cast<float>(0.5 * std::sqrt(0.1)));
}

TEST(Initializer, HasTheRightMomentsAndIsAFunctionOfTheSeed) {
  config::Model model = testing::SmallConfig(1, 1).model();
  auto* dense = model.mutable_layer(0)->mutable_dense();
  dense->set_units(20000);
  const auto moments = [&](config::Initializer::Type type, uint64_t seed, double* mean,
                           double* stddev, double* largest) {
    dense->mutable_weights()->mutable_initializer()->set_type(type);
    dense->mutable_weights()->mutable_initializer()->set_stddev(0.05f);
    const Graph graph = Graph::Build(model, {1, 1, 3});
    std::vector<float> arena(graph.arena_floats(), 7.0f);
    InitializeWeights(graph, seed, arena);
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
  EXPECT_NEAR(stddev, 0.05 * 0.8796, 0.0005);  // of a normal cut at 2 stddev
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
