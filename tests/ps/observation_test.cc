// Observations of a step equal plain sums, and do not influence it.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ps/update/choose_kernels.h"
#include "ps/update/observation_sums.h"

namespace muster {
namespace {

using ::testing::ElementsAre;

Variable Named(const std::string& name, int layer, size_t offset, size_t count) {
  Variable variable{};
  variable.name = name;
  variable.layer = layer;
  variable.shape = {static_cast<int64_t>(count)};
  variable.offset = offset;
  variable.count = count;
  return variable;
}

class ObservationTest : public ::testing::Test {
 protected:
  ObservationTest() : layout_({Named("a", 0, 0, 20), Named("b", 1, 32, 1000)}, {}) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    left_.resize(layout_.arena_floats());
    right_ = weights_ = left_;
    for (const Variable& variable : layout_.variables()) {
      for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
        left_[i] = normal(random);
        right_[i] = normal(random);
        weights_[i] = normal(random);
      }
    }
  }

  void See(ChunkObserver& observer, size_t begin, size_t end, bool two) {
    for (size_t at = begin; at < end; at += 512) {
      const size_t count = std::min<size_t>(512, end - at);
      observer.See(ChooseKernels(config::Server::SCALAR), at, count, left_.data() + at,
                   two ? right_.data() + at : nullptr, weights_.data() + at);
    }
  }

  VariableLayout layout_;
  std::vector<float> left_, right_, weights_;
};

TEST_F(ObservationTest, NormsOfASumAndOfItsParts) {
  double left = 0, both = 0, weights = 0;
  for (size_t i = 0; i < left_.size(); ++i) {
    const double sum = left_[i] + right_[i];
    left += static_cast<double>(left_[i]) * left_[i];
    both += sum * sum;
    weights += static_cast<double>(weights_[i]) * weights_[i];
  }
  for (const bool two : {false, true}) {
    std::vector<ChunkObserver> chunks(2, {layout_, false});
    See(chunks[0], 0, 64, two);
    See(chunks[1], 64, layout_.arena_floats(), two);
    const Observation seen = SumUp(chunks, 1);
    EXPECT_NEAR(seen.gradient_norm, std::sqrt(two ? both : left), 1e-4);
    EXPECT_NEAR(seen.weight_norm, std::sqrt(weights), 1e-4);
    EXPECT_TRUE(seen.variables.empty());
    // The norm is the one before clipping to a quarter.
    EXPECT_DOUBLE_EQ(SumUp(chunks, 0.25).gradient_norm, 4 * seen.gradient_norm);
  }
}

TEST_F(ObservationTest, HistogramsOfEachVariableWithoutThePadding) {
  std::vector<ChunkObserver> chunks(2, {layout_, true});
  See(chunks[0], 0, 64, true);
  See(chunks[1], 64, layout_.arena_floats(), true);
  const Observation seen = SumUp(chunks, 1);
  ASSERT_EQ(seen.variables.size(), 2u);
  EXPECT_EQ(seen.variables[0].name, "a");
  EXPECT_EQ(seen.variables[0].weights.count(), 20u);
  EXPECT_EQ(seen.variables[1].name, "b");
  EXPECT_EQ(seen.variables[1].gradient.count(), 1000u);
  const Variable& b = layout_.variables()[1];
  const auto weights = std::span(weights_).subspan(b.offset, b.count);
  EXPECT_EQ(seen.variables[1].weights.ToProto().max(), *std::ranges::max_element(weights));
}

}  // namespace
}  // namespace muster
