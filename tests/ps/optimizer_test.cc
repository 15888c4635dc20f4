// Every optimizer against PyTorch (golden/optimizers.txt, by scripts/make_optimizer_golden.py),
// against its formula in double, and bit for bit against the oracle.
#include "ps/update/optimizer.h"

#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "common/base/random.h"
#include "tests/base/paths.h"
#include "tests/oracle/oracle.h"
#include "tests/ps/optimizer_reference.h"
#include "tests/ps/update_run.h"

namespace muster::testing {
namespace {

const char* const kOptimizers[] = {
    "type: SGD weight_decay: 0.01",
    "type: SGD weight_decay: 0.01 decay_type: DECOUPLED",
    "type: MOMENTUM momentum: 0.8 weight_decay: 0.01",
    "type: NESTEROV momentum: 0.8 weight_decay: 0.01",
    "type: ADAM weight_decay: 0.01",
    "type: ADAM beta1: 0.5 beta2: 0.9 epsilon: 1e-3",
    "type: ADAMW weight_decay: 0.1",
    "type: RMSPROP weight_decay: 0.01",
    "type: RMSPROP rho: 0.9 momentum: 0.9 epsilon: 1e-4",
};

float Value(uint32_t stream, size_t i) {
  return ToUniform(RandomStream(1, RandomPurpose::kSynthetic, stream, 0, i).Block(0)[0]) - 0.5f;
}

std::vector<float> Values(uint32_t stream, size_t size) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = Value(stream, i);
  return values;
}

double Largest(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max<double>(largest, std::abs(value));
  return largest;
}

TEST(Optimizers, AreThoseOfPyTorch) {
  constexpr size_t kSize = 8;
  std::ifstream in(SourcePath("tests/ps/golden/optimizers.txt"));
  ASSERT_TRUE(in) << SourcePath("tests/ps/golden/optimizers.txt");
  std::set<std::string> types;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("case ")) continue;
    SCOPED_TRACE(line);
    const size_t first = line.find('|'), second = line.find('|', first + 1);
    const config::Optimizer settings = ParseOptimizer(line.substr(first + 1, second - first - 1));
    types.insert(config::Optimizer::Type_Name(settings.type()));
    const double rate = std::stod(line.substr(second + 1));
    std::vector<float> weights(16), gradient(16);
    for (size_t i = 0; i < kSize; ++i) weights[i] = (static_cast<float>(i * 5 % 8) - 4) / 8;
    UpdateRun run(settings, weights,
                  {{.begin = 0, .end = 16, .weight_decay = settings.weight_decay()}});
    for (int64_t step = 1; step <= 100; ++step) {
      for (size_t i = 0; i < kSize; ++i) {
        const auto s = static_cast<size_t>(step);
        const auto noise = static_cast<float>((s * 37 + i * 59 + s * i * 11) % 128);
        gradient[i] = (noise - 64) / 64 / static_cast<float>(1 << (i % 4));
      }
      ASSERT_TRUE(run.Step(step, rate, gradient));
      if (step != 1 && step != 2 && step != 10 && step != 100) continue;
      for (size_t i = 0; i < kSize; ++i) {
        double golden;
        ASSERT_TRUE(in >> golden);
        EXPECT_NEAR(run.weights[i], golden, 2e-6 * Largest(run.weights)) << i << ", step " << step;
      }
    }
  }
  EXPECT_THAT(types, ::testing::UnorderedElementsAreArray(OptimizerTypes()));
}

// Over 100 steps of a falling rate, with decays and rates that differ by variable.
TEST(Optimizers, AreTheirFormulas) {
  constexpr size_t kSize = 3008;
  for (const char* text : kOptimizers) {
    SCOPED_TRACE(text);
    const config::Optimizer settings = ParseOptimizer(text);
    const std::vector<Segment> segments{
        {.begin = 0, .end = 48, .weight_decay = 0},
        {.begin = 48, .end = 1600, .weight_decay = 0.01f, .rate_multiplier = 2},
        {.begin = 1600, .end = kSize, .weight_decay = 0.1f, .rate_multiplier = 0.5f}};
    UpdateRun run(settings, Values(0, kSize), segments);
    std::vector<OptimizerReference> reference;
    for (const float w : run.weights) reference.push_back({settings, w});
    for (int64_t step = 1; step <= 100; ++step) {
      const double rate = 0.01 / static_cast<double>(step + 10);
      const std::vector<float> gradient = Values(static_cast<uint32_t>(step), kSize);
      ASSERT_TRUE(run.Step(step, rate, gradient));
      for (const Segment& segment : segments) {
        for (size_t i = segment.begin; i < segment.end; ++i) {
          reference[i].Step(step, rate * segment.rate_multiplier, gradient[i],
                            segment.weight_decay);
        }
      }
    }
    const double bound = 2e-6 * Largest(run.weights);
    for (size_t i = 0; i < kSize; ++i) ASSERT_NEAR(run.weights[i], reference[i].w, bound) << i;
  }
}

// The oracle rounds each operation separately, as every instruction set must.
TEST(Optimizers, HaveTheBitsOfTheOracleForAllChunkSizes) {
  constexpr size_t kSize = 2096;  // blocks of 1,024, 1,024 and 48
  const VariableLayout layout({{.name = "w",
                                .layer = 0,
                                .shape = {kSize},
                                .offset = 0,
                                .count = kSize,
                                .fan_in = 1,
                                .fan_out = 1,
                                .weight_decay = 0.01f}},
                              {});
  for (const char* text : kOptimizers) {
    SCOPED_TRACE(text);
    const config::Optimizer settings = ParseOptimizer(text);
    const Segment all{.begin = 0, .end = kSize, .weight_decay = 0.01f};
    UpdateRun whole(settings, Values(0, kSize), {all}), pieces(settings, Values(0, kSize), {all});
    oracle::Updater expected(layout, settings, whole.weights);
    for (int64_t step = 1; step <= 3; ++step) {
      const std::vector<float> gradient = Values(static_cast<uint32_t>(step), kSize);
      ASSERT_TRUE(whole.Step(step, 0.1, gradient));
      ASSERT_TRUE(pieces.Step(step, 0.1, gradient, 80));
      expected.Update(gradient, 0.1);
      for (size_t i = 0; i < kSize; ++i) {
        const auto bits = std::bit_cast<uint32_t>(expected.weights()[i]);
        ASSERT_EQ(std::bit_cast<uint32_t>(whole.weights[i]), bits) << i << ", step " << step;
        ASSERT_EQ(std::bit_cast<uint32_t>(pieces.weights[i]), bits) << i << ", step " << step;
      }
    }
  }
}

TEST(Optimizers, NoticeEveryNonfiniteValue) {
  constexpr size_t kSize = 2096;
  for (const std::string text : kOptimizers) {
    for (const std::string clip : {"", " clip_value: 0.1"}) {
      for (const auto kind :
           {Segment::Kind::kTrained, Segment::Kind::kFrozen, Segment::Kind::kStatistic}) {
        for (const float bad : {std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(), std::nanf("")}) {
          for (const size_t at : {size_t{0}, size_t{1}, size_t{1040}, kSize - 1}) {
            SCOPED_TRACE(text + clip);
            UpdateRun run(ParseOptimizer(text + clip), Values(0, kSize),
                          {{.begin = 0, .end = kSize, .kind = kind, .statistic_momentum = 0.1f}});
            std::vector<float> gradient = Values(1, kSize);
            EXPECT_TRUE(run.Step(1, 0, gradient));
            gradient[at] = bad;
            EXPECT_FALSE(run.Step(2, 0, gradient)) << "even with a learning rate of 0";
          }
        }
      }
    }
  }
}

// g² overflows long before g. The weight would stay finite but never change again.
TEST(Optimizers, NoticeASecondMomentThatOverflows) {
  for (const char* text :
       {"type: ADAM", "type: ADAMW", "type: RMSPROP", "type: RMSPROP momentum: 0.5"}) {
    UpdateRun run(ParseOptimizer(text), Values(0, 32), {{.begin = 0, .end = 32}});
    std::vector<float> gradient(32, 1e15f);
    EXPECT_TRUE(run.Step(1, 0.1, gradient)) << text;
    gradient[3] = 1e25f;
    EXPECT_FALSE(run.Step(2, 0.1, gradient)) << text;
    EXPECT_TRUE(std::isfinite(run.weights[3]));
  }
}

TEST(Optimizers, KeepAsMuchStateAsTheyNeed) {
  const auto arenas = [](const char* text) {
    return Optimizer(ParseOptimizer(text), *AvailableKernels().back()).state_arenas();
  };
  EXPECT_EQ(arenas("type: SGD"), 0u);
  EXPECT_EQ(arenas("type: MOMENTUM"), 1u);
  EXPECT_EQ(arenas("type: NESTEROV"), 1u);
  EXPECT_EQ(arenas("type: ADAM"), 2u);
  EXPECT_EQ(arenas("type: ADAMW"), 2u);
  EXPECT_EQ(arenas("type: RMSPROP"), 1u);
  EXPECT_EQ(arenas("type: RMSPROP momentum: 0.1"), 2u);
}

}  // namespace
}  // namespace muster::testing
