// Ops on bfloat16 activations match the oracle (tests/nn/bf16_cases.h).
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

INSTANTIATE_TEST_SUITE_P(Ops, Bf16Test, ::testing::ValuesIn(Bf16Cases()),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

}  // namespace
}  // namespace muster
