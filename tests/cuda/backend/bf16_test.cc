// Ops on bfloat16 activations match the oracle (tests/nn/bf16_cases.h).
#include <cublas_v2.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/software_gpu/control.h"
#include "tests/nn/bf16_cases.h"
#include "tests/nn/host_facing.h"
#include "worker/backend/cuda/cuda_backend.h"

namespace muster {
namespace {

class Bf16Test : public ::testing::TestWithParam<OpCase> {};

TEST_P(Bf16Test, MatchesTheReference) {
  for (const auto convolution :
       {CudaOptions::Convolution::kCudnn, CudaOptions::Convolution::kGemm}) {
    const auto backend =
        MakeHostFacing(cuda::MakeCudaWorker(
                           {.precision = CudaOptions::Precision::kBf16, .convolution = convolution})
                           .backend);
    OpCase c = GetParam();
    c.tolerance = kBf16Tolerance;
    ExpectMatchesReference(*backend, c, RoundedInputs(c));
  }
  EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
  EXPECT_THAT(software_gpu::KernelsWithoutResources(), ::testing::IsEmpty());
}

// A training step changes the weights, and their version with them.
TEST(Bf16WeightsTest, AreConvertedForEachVersion) {
  const auto backend =
      MakeHostFacing(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kBf16}).backend);
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

TEST(Bf16WeightsTest, FreeTheirCopies) {
  const auto backend = cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kBf16}).backend;
  backend->Enter();
  const Layer layer = reference::MakeLayer("dense { units: 100 }", {1, 1, 50});
  const size_t before = backend->memory_use().held;
  auto op = backend->MakeOp(layer, {.batch = 1, .mode = Mode::kInference});
  EXPECT_EQ(backend->memory_use().held - before, 2 * (100 * 50 + 100));
  op.reset();
  EXPECT_EQ(backend->memory_use().held, before);
}

// Without an algorithm of cublasLt, bias and relu are a second pass.
TEST(Bf16ProductTest, WithoutCublasLtHasTheSameResult) {
  const auto backend =
      MakeHostFacing(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kBf16}).backend);
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

INSTANTIATE_TEST_SUITE_P(Ops, Bf16Test, ::testing::ValuesIn(Bf16Cases()),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

}  // namespace
}  // namespace muster
