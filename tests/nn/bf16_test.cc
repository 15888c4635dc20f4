// worker.precision BF16 on the CPU: rounding, every op against the oracle, and whole networks
// against FP32.
#include "worker/backend/cpu/bf16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/nn/bf16_cases.h"
#include "tests/nn/expect_flips.h"
#include "tests/nn/host_facing.h"
#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/backend/cpu/vec.h"
#include "worker/nn/tower.h"

namespace muster {
namespace bf16_test {

using cpu::Bf16;

std::unique_ptr<Backend> MakeBf16(int threads = 1) {
  return MakeCpuBackend(threads, {.bf16 = true});
}

#define SKIP_WITHOUT_BF16()                                       \
  if (!CpuHasBf16()) {                                            \
    GTEST_SKIP() << "skipped: this processor has no AVX512-BF16"; \
  }

// All upper halves, with lower halves around the ties.
TEST(Bf16Test, RoundsAsTheWireDoes) {
  std::vector<float> floats;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      floats.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::vector<uint16_t> expected(floats.size());
  ToHalves(ElementType::kBFloat16, floats, expected.data());
  std::vector<Bf16> one(floats.size()), eight(floats.size());
  ASSERT_EQ(floats.size() % cpu::kLanes, 0);
  for (size_t i = 0; i < floats.size(); ++i) one[i] = floats[i];
  for (size_t i = 0; i < floats.size(); i += cpu::kLanes) {
    cpu::Store(&eight[i], cpu::LoadFloats(&floats[i]));
  }
  for (size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i])) {
      EXPECT_TRUE(std::isnan(one[i]) && std::isnan(eight[i])) << i;
      continue;
    }
    EXPECT_EQ(std::bit_cast<uint16_t>(one[i]), expected[i]) << floats[i];
    EXPECT_EQ(std::bit_cast<uint16_t>(eight[i]), expected[i]) << floats[i];
  }
  std::vector<float> back(floats.size());
  FromHalves(ElementType::kBFloat16, expected, back.data());
  for (size_t i = 0; i < floats.size(); i += cpu::kLanes) {
    const cpu::FloatVec vec = cpu::LoadFloats(&eight[i]);
    for (size_t j = 0; j < cpu::kLanes; ++j) {
      if (std::isnan(back[i + j])) continue;
      EXPECT_EQ(vec[j], back[i + j]);
      EXPECT_EQ(float{one[i + j]}, back[i + j]);
    }
  }
}

class Bf16OpTest : public ::testing::TestWithParam<OpCase> {};

// Without AVX512-BF16 only the products cannot be tested.
TEST_P(Bf16OpTest, MatchesTheReference) {
  OpCase c = GetParam();
  if (c.layer.starts_with("conv2d") || c.layer.starts_with("dense")) SKIP_WITHOUT_BF16();
  c.tolerance = kBf16Tolerance;
  for (const int threads : {1, 2}) {
    const auto backend = MakeHostFacing(MakeBf16(threads));
    ExpectMatchesReference(*backend, c, RoundedInputs(c));
  }
}

// Shapes that the golden cases lack: whole vectors and strips of channels, layers that work on
// copies as floats, and sizes for which oneDNN has different kernels.
std::vector<OpCase> MoreCases() {
  std::vector<OpCase> cases = Bf16Cases();
  const Activation relu = Activation::kRelu;
  const std::vector<OpCase> more = {
      {.layer = "conv2d { filters: 64 kernel: 3 padding: SAME }",
       .input = {8, 8, 64},
       .batch = 4,
       .activation = relu,
       .input_is_relu = true},
      {.layer = "conv2d { filters: 64 kernel: 5 padding: SAME }", .input = {8, 8, 3}, .batch = 4},
      {.layer = "conv2d { filters: 32 kernel: 1 stride: 2 }", .input = {7, 7, 24}, .batch = 2},
      {.layer = "dense { units: 128 }", .input = {4, 4, 32}, .batch = 16, .input_is_relu = true},
      {.layer = "dense { units: 1 use_bias: false }", .input = {1, 1, 3}, .batch = 1},
      {.layer = "batch_norm {}",
       .input = {4, 4, 48},
       .batch = 8,
       .activation = relu,
       .fuse_add = true},
      {.layer = "max_pool { kernel: 3 stride: 2 padding: SAME }",
       .input = {9, 9, 43},
       .batch = 2,
       .input_is_relu = true},
      {.layer = "lrn { depth_radius: 4 bias: 1 alpha: 0.0001 beta: 0.75 }",
       .input = {5, 5, 64},
       .batch = 2,
       .input_is_relu = true},
      {.layer = "avg_pool { kernel: 3 stride: 2 }",
       .input = {7, 7, 20},
       .batch = 2,
       .input_is_relu = true},
      {.layer = "global_avg_pool {}", .input = {4, 4, 130}, .batch = 3},
      {.layer = "group_norm { groups: 4 }", .input = {4, 4, 16}, .batch = 2, .activation = relu},
      {.layer = "add {}", .input = {3, 3, 8}, .batch = 2, .other_channels = {8, 8}},
      {.layer = "concat {}", .input = {3, 3, 5}, .batch = 2, .other_channels = {3, 16}},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, Bf16OpTest, ::testing::ValuesIn(MoreCases()),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

class Bf16TowerTest : public ::testing::TestWithParam<NetworkCase> {
 protected:
  struct Result {
    double loss;
    Arena gradients;
    std::vector<float> logits;
  };
  Result Step(bool bf16, int threads) const {
    const auto backend = MakeCpuBackend(threads, {.bf16 = bf16});
    Tower tower(graph_, *backend, kSeed);
    const SampleBatch batch(graph_, 10, 8);
    Result result{0, Arena(graph_.arena_floats()), std::vector<float>(8 * graph_.outputs())};
    TowerInput input = batch.Input();
    input.logits = result.logits.data();
    tower.Prepare(input.count, Mode::kTraining);
    result.loss = ForwardOf(tower, input, Mode::kTraining, weights_, 0).loss;
    tower.Backward(0.125f, weights_.floats(), result.gradients.floats(), nullptr);
    return result;
  }
  bool has_dense_logits() const {
    const std::vector<Layer>& layers = graph_.layers();
    return std::holds_alternative<DenseSpec>(layers[layers.size() - 2].spec);
  }
  const Graph graph_ = reference::MakeGraph(GetParam().layers, GetParam().input);
  const Arena weights_ = RandomWeights(graph_);
};

// The gradients of all variables together: a single one may be almost zero.
TEST_P(Bf16TowerTest, IsCloseToFp32) {
  SKIP_WITHOUT_BF16();
  const Result expected = Step(false, 1);
  for (const int threads : {1, 2}) {
    const Result got = Step(true, threads);
    EXPECT_NEAR(got.loss, expected.loss, 0.02 * std::abs(expected.loss));
    EXPECT_LE(RelativeL2(got.gradients.floats(), ToDoubles(expected.gradients.floats())), 0.05);
    EXPECT_LE(RelativeL2(got.logits, ToDoubles(expected.logits)), 0.02);
    const Result again = Step(true, threads);
    EXPECT_EQ(again.loss, got.loss);
    EXPECT_TRUE(std::ranges::equal(again.gradients.floats(), got.gradients.floats()));
  }
}

// In bfloat16, logits would often be equal.
TEST_P(Bf16TowerTest, OnlyTheLogitsOfADenseLayerAreFloats) {
  SKIP_WITHOUT_BF16();
  const std::vector<float> logits = Step(true, 1).logits;
  std::vector<float> rounded = logits;
  RoundTo(ElementType::kBFloat16, rounded);
  EXPECT_EQ(rounded != logits, has_dense_logits());
}

TEST_P(Bf16TowerTest, FlipTakesTheMeanOfImagesAndMirrorImages) {
  SKIP_WITHOUT_BF16();
  ExpectFlips(*MakeBf16(), graph_, weights_,
              has_dense_logits() ? ElementType::kFloat32 : ElementType::kBFloat16);
}

INSTANTIATE_TEST_SUITE_P(Networks, Bf16TowerTest, ::testing::ValuesIn(kNetworks),
                         [](const auto& p) { return p.param.name; });

}  // namespace bf16_test
}  // namespace muster
