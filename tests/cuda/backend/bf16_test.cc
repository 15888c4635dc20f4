// Ops on activations in bfloat16 and half match the oracle (tests/nn/bf16_cases.h).
#include <cublas_v2.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/software_gpu/control.h"
#include "tests/nn/bf16_cases.h"
#include "tests/nn/host_facing.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace muster {
namespace {

using Precision = CudaOptions::Precision;

struct PrecisionCase {
  Precision precision;
  ElementType type;
  double tolerance;
};
constexpr PrecisionCase kPrecisions[] = {
    {Precision::kBf16, ElementType::kBFloat16, kBf16Tolerance},
    {Precision::kFp16, ElementType::kFloat16, kFp16Tolerance},
};

class HalvesTest : public ::testing::TestWithParam<std::tuple<PrecisionCase, OpCase>> {};

TEST_P(HalvesTest, MatchesTheReference) {
  const auto& [precision, op_case] = GetParam();
  for (const auto convolution :
       {CudaOptions::Convolution::kCudnn, CudaOptions::Convolution::kGemm}) {
    const auto backend = MakeHostFacing(
        cuda::MakeCudaWorker({.precision = precision.precision, .convolution = convolution})
            .backend);
    OpCase c = op_case;
    c.tolerance = precision.tolerance;
    ExpectMatchesReference(*backend, c, RoundedInputs(c, precision.type));
  }
  EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
}

// Each of the tests below in both types.
class HalfTypeTest : public ::testing::TestWithParam<Precision> {
 protected:
  static std::unique_ptr<Backend> Make() {
    return cuda::MakeCudaWorker({.precision = GetParam()}).backend;
  }
};

// A training step changes the weights, and their version with them.
TEST_P(HalfTypeTest, WeightsAreConvertedForEachVersion) {
  const auto backend = MakeHostFacing(Make());
  backend->Enter();
  for (const char* const name : {"dense { units: 2 }", "conv2d { filters: 2 kernel: 1 }"}) {
    const Layer layer = reference::MakeLayer(name, {1, 1, 2});
    const auto op = backend->MakeOp(layer, {.batch = 1, .mode = Mode::kInference});
    for (const int version : {1, 2, 5}) {
      const auto k = static_cast<float>(version);
      const Arena x = ToArena({1, 3}), weights = ToArena({k, 2, 0, k}), bias = ToArena({k, -k});
      Arena y(2), scratch(op->scratch_bytes() / sizeof(float));
      op->Forward({.input = x.floats().data(),
                   .output = y.floats().data(),
                   .weights = weights.floats().data(),
                   .bias = bias.floats().data(),
                   .weights_version = version,
                   .scratch = scratch.floats().data()});
      EXPECT_EQ(y.floats()[0], k + 6 + k) << name;
      EXPECT_EQ(y.floats()[1], 3 * k - k) << name;
    }
  }
}

TEST_P(HalfTypeTest, WeightsFreeTheirCopies) {
  const auto backend = Make();
  backend->Enter();
  const Layer layer = reference::MakeLayer("dense { units: 100 }", {1, 1, 50});
  const size_t before = backend->memory_use().held;
  auto op = backend->MakeOp(layer, {.batch = 1, .mode = Mode::kInference});
  EXPECT_EQ(backend->memory_use().held - before, 2 * (100 * 50 + 100));
  op.reset();
  EXPECT_EQ(backend->memory_use().held, before);
}

// The plan of a tower's memory counts them before they are allocated.
TEST_P(HalfTypeTest, CopiesOfATowersWeightsTakeWhatTheySay) {
  const auto backend = Make();
  backend->Enter();
  const std::unique_ptr<WeightLayouts> copies = backend->MakeWeightLayouts();
  std::vector<std::unique_ptr<Op>> ops;
  for (const int layer : {1, 2, 1}) {  // two programs of a tower have layer 1
    const int units = 10 * layer;
    ops.push_back(backend->MakeOp(
        reference::MakeLayer(fmt::format("dense {{ units: {} }}", units), {1, 1, 50}),
        {.batch = 1, .mode = Mode::kInference, .layer = layer, .layouts = copies.get()}));
  }
  EXPECT_EQ(copies->bytes(), 2 * ((50 * 10 + 10) + (50 * 20 + 20)));
  const size_t before = backend->memory_use().held;
  copies->Allocate();
  EXPECT_EQ(backend->memory_use().held - before, copies->bytes());
}

// Without an algorithm of cublasLt, bias and relu are a second pass.
TEST_P(HalfTypeTest, WithoutCublasLtAProductHasTheSameResult) {
  const auto backend = MakeHostFacing(Make());
  backend->Enter();
  const OpCase c{.layer = "dense { units: 3 }",
                 .input = {1, 1, 2},
                 .activation = Activation::kRelu,
                 .mode = Mode::kInference};
  const OpInputs inputs{
      .inputs = {{2, 3}}, .dy = {0, 0, 0}, .weights = {1, 1, -1, -1, 0, 1}, .bias = {4, 1, -8}};
  for (const bool fused : {true, false}) {
    if (!fused) {
      software_gpu::FailCall("cublasLtMatmulAlgoGetHeuristic", 1, CUBLAS_STATUS_NOT_SUPPORTED);
    }
    const int products = software_gpu::Calls("cublasLtMatmul");
    const OpResult got = RunOp(*backend, c, inputs);
    EXPECT_EQ(software_gpu::Calls("cublasLtMatmul") - products, fused ? 1 : 0);
    EXPECT_THAT(got.output.floats(), ::testing::ElementsAre(9, 0, 0));
  }
}

// A gradient below the range of half precision is zero, unless the loss is scaled.
TEST(Fp16LossTest, ScalingSavesSmallGradients) {
  const auto backend =
      MakeHostFacing(cuda::MakeCudaWorker({.precision = Precision::kFp16}).backend);
  backend->Enter();
  const Graph graph = reference::MakeGraph(
      "layer { name: 'out' dense { units: 2 } } layer { name: 'loss' softmax_cross_entropy {} }",
      {1, 1, 4});
  const auto op = backend->MakeLoss(graph.layers().back(), {.batch = 1});
  const Arena logits = ToArena({0, 0});
  const int32_t label = 0;
  Arena state(op->state_bytes() / sizeof(float)), gradient(2);
  LossSums sums;
  int32_t prediction = 0;
  const LossArgs args{
      .logits = logits.floats().data(), .labels = &label, .state = state.floats().data()};
  op->Forward(args, &sums, &prediction);
  constexpr float kSmall = 0x1p-30f;
  op->Backward(args, kSmall, gradient.floats().data());
  EXPECT_THAT(gradient.floats().first(2), ::testing::ElementsAre(0, 0));
  op->Backward(args, kSmall * 65536, gradient.floats().data());
  EXPECT_THAT(gradient.floats().first(2), ::testing::ElementsAre(-0x1p-15f, 0x1p-15f));
}

INSTANTIATE_TEST_SUITE_P(Ops, HalvesTest,
                         ::testing::Combine(::testing::ValuesIn(kPrecisions),
                                            ::testing::ValuesIn(Bf16Cases())),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });
INSTANTIATE_TEST_SUITE_P(Types, HalfTypeTest, ::testing::Values(Precision::kBf16, Precision::kFp16),
                         [](const auto& p) {
                           return p.param == Precision::kBf16 ? "Bf16" : "Fp16";
                         });

}  // namespace
}  // namespace muster
