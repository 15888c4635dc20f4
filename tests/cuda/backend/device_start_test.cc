// MakeCudaWorker with various GPUs and libraries, before the first step.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "tests/cuda/backend/device_fixture.h"
#include "tests/nn/test_backend.h"
#include "worker/nn/self_test.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The error of MakeCudaWorker for an unusable GPU.
std::string Refusal(const CudaOptions& options) {
  try {
    (void)cuda::MakeCudaWorker(options);
    return "";
  } catch (const NoGpu&) {
    return "no GPU";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kFailure);
    return error.what();
  }
}

class CudaDeviceStartTest : public CudaDeviceTest {};

TEST_F(CudaDeviceStartTest, WithoutACardOrDriverALineSaysSo) {
  software_gpu::Reset({.devices = 0});
  try {
    (void)cuda::MakeCudaWorker({});
    ADD_FAILURE() << "expected an error";
  } catch (const NoGpu& error) {
    EXPECT_THAT(error.what(), HasSubstr("CUDA finds no usable GPU"));
  }
  for (const bool installed : {false, true}) {
    software_gpu::Reset({});
    software_gpu::FailCall("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver);
    if (!installed) software_gpu::FailCall("cudaDriverGetVersion", 1, cudaErrorInsufficientDriver);
    try {
      (void)cuda::MakeCudaWorker({});
      ADD_FAILURE() << "expected an error";
    } catch (const NoGpu& error) {
      EXPECT_THAT(error.what(), HasSubstr("worker.backend=CPU"));
      EXPECT_THAT(error.what(),
                  HasSubstr(installed ? "driver supports CUDA 1" : "no NVIDIA driver"));
      EXPECT_THAT(error.what(), HasSubstr(fmt::format(" {}.{} or later", CUDART_VERSION / 1000,
                                                      CUDART_VERSION % 1000 / 10)));
    }
  }
  // The launcher assigned this GPU, so do not fall back to the CPU.
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-0123", 1);
  software_gpu::Reset({.devices = 0});
  EXPECT_THAT(Refusal({}), HasSubstr("this worker's GPU (GPU-0123) cannot be found"));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(CudaDeviceStartTest, ACardThatTheBuildHasNoCodeForIsNamed) {
  for (const cudaError_t error :
       {cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion}) {
    software_gpu::Reset({.compute_major = 6, .compute_minor = 1});
    software_gpu::FailCall("cudaFuncGetAttributes", 1, error);
    EXPECT_THAT(Refusal({}), AllOf(HasSubstr("this build has no code for Software GPU (sm_61)"),
                                   HasSubstr("MUSTER_CUDA_ARCHITECTURES")));
  }
}

TEST_F(CudaDeviceStartTest, HalvesNeedACardThatHasThem) {
  software_gpu::Reset({.compute_major = 6, .compute_minor = 1});
  EXPECT_THAT(Refusal({.precision = CudaOptions::Precision::kFp16}),
              AllOf(HasSubstr("sm_61"), HasSubstr("sm_70"), HasSubstr("worker.precision=FP32")));
  software_gpu::Reset({.compute_major = 7, .compute_minor = 5});
  EXPECT_THAT(Refusal({.precision = CudaOptions::Precision::kBf16}),
              AllOf(HasSubstr("sm_75"), HasSubstr("worker.precision=FP16")));
  EXPECT_THAT(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kTf32}).arithmetic,
              HasSubstr(", FP32 (this GPU has no TF32), "));
  EXPECT_THAT(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kFp16}).arithmetic,
              HasSubstr(", FP16, "));
}

// Environment variables that override the libraries are part of it.
TEST_F(CudaDeviceStartTest, TheBitsNameWhatOverridesTheLibraries) {
  ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  EXPECT_THAT(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kTf32}).arithmetic,
              HasSubstr(", NVIDIA_TF32_OVERRIDE=0"));
  ::unsetenv("NVIDIA_TF32_OVERRIDE");
}

// cuDNN may return a workspace size for a convolution that it cannot run. Each one is tried before
// the first step, so that the arithmetic never changes later.
TEST_F(CudaDeviceStartTest, WhatCudnnDoesNotDoIsFoundBeforeTheFirstStep) {
  const std::vector<float> by_cudnn = Step();
  const int products = software_gpu::Calls("cublasGemmEx");
  for (const auto& [call, status] :
       {std::pair{"cudnnConvolutionForward", CUDNN_STATUS_BAD_PARAM},
        {"cudnnConvolutionBackwardData", CUDNN_STATUS_NOT_SUPPORTED},
        {"cudnnConvolutionBackwardFilter", CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED},
        {"cudnnGetConvolutionForwardWorkspaceSize", CUDNN_STATUS_BAD_PARAM},
        {"cudnnSetConvolution2dDescriptor", CUDNN_STATUS_INTERNAL_ERROR}}) {
    software_gpu::Reset({});
    software_gpu::FailCall(call, 1, status);
    ::testing::internal::CaptureStderr();
    const std::vector<float> gradients = Step();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("using cuBLAS"));
    ExpectRight(gradients);
    EXPECT_GT(software_gpu::Calls("cublasGemmEx"), products) << call;
    EXPECT_EQ(Step(), by_cudnn);
  }
}

// cuBLAS convolves with less memory.
TEST_F(CudaDeviceStartTest, AConvolutionForWhichCudnnWantsTooMuchMemoryIsDoneWithout) {
  for (const size_t over : {0, 1}) {
    // So little memory that none is left for the trials of so large a workspace.
    software_gpu::Reset(
        {.memory_bytes = size_t{128} << 20, .cudnn_workspace_bytes = (size_t{256} << 20) + over});
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
    backend->Enter();
    Tower tower(graph_, *backend, kSeed);
    tower.Plan(10, Mode::kTraining);
    EXPECT_THAT(backend->Convolutions(),
                HasSubstr(over == 0 ? "forward cudnn 1 x2, input cudnn 1 x1, weights cudnn 1 x2"
                                    : "forward gemm x2, input gemm x1, weights gemm x2"));
  }
}

// A convolution is tried only with memory of the worker's share of the GPU.
TEST_F(CudaDeviceStartTest, ATrialKeepsToTheWorkersShareOfTheCard) {
  const Layer layer = reference::MakeLayer("conv2d { filters: 16 kernel: 3 }", {64, 64, 16});
  for (const bool fits : {true, false}) {
    software_gpu::Reset({});
    const std::unique_ptr<Backend> backend =
        cuda::MakeCudaWorker({.memory_fraction = fits ? 0.5 : 0.0625}).backend;  // of 1 GiB
    backend->Enter();
    const auto op = backend->MakeOp(layer, {.batch = 128, .mode = Mode::kInference});
    EXPECT_EQ(software_gpu::Calls("cudnnConvolutionForward"), fits ? 1 : 0);
  }
}

TEST_F(CudaDeviceStartTest, WhatCudnnDoesNotSupportAfterItsTrialIsAnError) {
  for (const char* const call : {"cudnnConvolutionForward", "cudnnConvolutionBackwardData",
                                 "cudnnConvolutionBackwardFilter"}) {
    software_gpu::Reset({});
    (void)Step();
    const int calls = software_gpu::Calls(call);  // all trials, then the step itself
    ASSERT_GE(calls, 2);
    software_gpu::FailCall(call, calls / 2 + 1, CUDNN_STATUS_NOT_SUPPORTED);
    EXPECT_THROW((void)Step(), Error) << call;
  }
}

// A worker with no steps left skips the self-test, and must report the same line.
TEST_F(CudaDeviceStartTest, TheTestBeforeTheFirstStepChangesNothingOfTheLineOfConvolutions) {
  std::set<std::string> lines;
  for (const bool tested : {false, true}) {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
    if (tested) {
      const std::unique_ptr<Backend> cpu = MakeTestBackend(1);
      EXPECT_EQ(RunSelfTest(graph_, 10, 1e-3, *backend, *cpu).failure, "");
    }
    backend->Enter();
    Tower tower(graph_, *backend, kSeed);
    tower.Plan(10, Mode::kTraining);
    lines.insert(backend->Convolutions());
  }
  EXPECT_THAT(lines, ElementsAre(HasSubstr("input cudnn 1 x1")));
}

// No fallback: another worker may have enough memory and would compute different bits.
TEST_F(CudaDeviceStartTest, OnlyWhatIsNotSupportedIsLeftToOthers) {
  for (const char* const call :
       {"cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter",
        "cudnnGetConvolutionForwardWorkspaceSize", "cudnnGetConvolutionBackwardDataWorkspaceSize",
        "cudnnGetConvolutionBackwardFilterWorkspaceSize", "cudnnSetConvolution2dDescriptor"}) {
    software_gpu::Reset({});
    software_gpu::FailCall(call, 1, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    EXPECT_THROW((void)Step(), OutOfDeviceMemory) << call;
    software_gpu::Reset({});
    software_gpu::FailCall(call, 1, CUDNN_STATUS_EXECUTION_FAILED);
    EXPECT_THROW((void)Step(), Error) << call;
  }
}

// If cuDNN is incompletely installed or no longer supports the GPU, it is not used, unless the
// config requires it.
TEST_F(CudaDeviceStartTest, ACudnnThatDoesNotWorkHereIsDoneWithout) {
  for (const cudnnStatus_t status :
       {CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED,
        CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH}) {
    software_gpu::Reset({});
    software_gpu::FailCall("cudnnCreate", 1, status);
    ::testing::internal::CaptureStderr();
    EXPECT_THAT(cuda::MakeCudaWorker({}).arithmetic, HasSubstr(", convolutions GEMM"));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("cuDNN 9."), HasSubstr("does not work here")));
    software_gpu::FailCall("cudnnCreate", 1, status);
    EXPECT_THAT(Refusal({.convolution = CudaOptions::Convolution::kCudnn}),
                AllOf(HasSubstr("cannot start cuDNN"), HasSubstr("worker.convolution=GEMM")));
  }
  // Another cuDNN error must not change the bits silently.
  software_gpu::Reset({});
  software_gpu::FailCall("cudnnCreate", 1, CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED);
  EXPECT_THAT(Refusal({}), HasSubstr("cannot start cuDNN"));
}

// A worker does not fall back to the CPU then, unlike after any other Error.
TEST_F(CudaDeviceStartTest, TooLittleMemoryToStartWithIsItsOwnError) {
  for (const cudnnStatus_t status : {CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                                     CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED}) {
    software_gpu::Reset({});
    software_gpu::FailCall("cudnnCreate", 1, status);
    EXPECT_THROW((void)cuda::MakeCudaWorker({}), OutOfDeviceMemory);
  }
  for (const auto& [call, status] :
       {std::pair<const char*, int>{"cudaSetDevice", cudaErrorMemoryAllocation},
        {"cudaStreamCreateWithFlags", cudaErrorMemoryAllocation},
        {"cublasCreate", CUBLAS_STATUS_ALLOC_FAILED},
        {"cublasCreate", CUBLAS_STATUS_NOT_INITIALIZED}}) {
    software_gpu::Reset({});
    software_gpu::FailCall(call, 1, status);
    EXPECT_THROW((void)cuda::MakeCudaWorker({}), OutOfDeviceMemory) << call;
  }
  software_gpu::Reset({});
  software_gpu::FailCall("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  try {
    (void)cuda::MakeCudaWorker({});
    ADD_FAILURE() << "expected an error";
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("page-locked host memory"), ::testing::Not(HasSubstr("GPU"))));
  }
}

}  // namespace
}  // namespace muster
