// The CUDA backend when a call fails, the GPU hangs or memory runs out.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "tests/cuda/backend/device_fixture.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int FailureOf(const std::string& call) {
  if (call.starts_with("cublas")) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (call.starts_with("cudnn")) return CUDNN_STATUS_EXECUTION_FAILED;
  return cudaErrorUnknown;
}

// Calls that free or wait. If they fail, they leak.
bool IsCleaning(const std::string& call) {
  for (const char* const word : {"Destroy", "Free", "Unregister", "Synchronize", "GetError"}) {
    if (call.find(word) != std::string::npos) return true;
  }
  return false;
}

class CudaDeviceFailureTest : public CudaDeviceTest {};

// Makes the first, middle and last call of each function that a step uses fail. Expects an Error,
// or the right result if there is a fallback; never a hang or a leak.
TEST_F(CudaDeviceFailureTest, ACallThatFailsIsAnErrorOrDoesNotMatter) {
  (void)Step();
  const std::map<std::string, int> calls = software_gpu::AllCalls();
  EXPECT_GT(calls.size(), 20u);
  int errors = 0;
  for (const auto& [call, count] : calls) {
    if (IsCleaning(call)) continue;
    for (const int nth : std::set<int>{1, std::min(2, count), count}) {
      SCOPED_TRACE(fmt::format("{} {} of {}", call, nth, count));
      software_gpu::FailCall(call, nth, FailureOf(call));
      try {
        ExpectRight(Step());
      } catch (const Error& error) {
        ++errors;
        EXPECT_GT(std::string(error.what()).size(), 20u);
      }
      software_gpu::ForgetFailure();
      ASSERT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
      software_gpu::Reset({});
    }
  }
  EXPECT_GT(errors, 20);
}

// The driver never returns from the wait.
TEST_F(CudaDeviceFailureTest, AGpuThatHangsEndsTheProcessInTime) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  options_.drain_s = 0.2;
  const auto hang = [this] {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
    backend->Enter();
    const std::unique_ptr<DeviceBuffer> buffer = backend->Allocate(64);
    const software_gpu::Hold hold;
    backend->CopyIn(buffer->data(), weights_.floats().data(), 64);
    backend->Drain();
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(static_cast<int>(ExitCode::kDeadline)),
              "finish the copies from the host within 0.2 s");
}

// The limit is on the wait, not on what comes after it.
TEST_F(CudaDeviceFailureTest, AfterAWaitTheProcessGoesOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  options_.drain_s = 1;
  const auto go_on = [this] {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
    backend->Enter();
    backend->Drain();
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    std::_Exit(0);
  };
  EXPECT_EXIT(go_on(), ::testing::ExitedWithCode(0), "");
}

TEST_F(CudaDeviceFailureTest, ALostCardIsAnErrorAtTheNextLook) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  const auto memory = backend->Allocate(4096);
  const auto event = backend->MakeEvent();
  backend->Zero(memory->data(), 4096);
  software_gpu::FailCall("kernel", 1, cudaErrorIllegalAddress);
  auto* const floats = static_cast<float*>(memory->data());
  EXPECT_THROW(
      {
        backend->AddSlices(ElementType::kFloat32, floats, floats, floats, 1024);
        backend->Record(Queue::kCompute, *event);
        (void)event->Wait(kPatience);
      },
      Error);
  software_gpu::ForgetFailure();
}

TEST_F(CudaDeviceFailureTest, OutOfMemorySaysWhatWasWantedAndWhatIsThere) {
  software_gpu::Reset({.memory_bytes = size_t{64} << 20});
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  try {
    (void)backend->Allocate(size_t{40} << 20);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kFailure);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("out of memory"), HasSubstr("requested 41.9 MB more"),
                                    HasSubstr("of 67.1 MB are free"), HasSubstr("holds 33.6 MB")));
  }
  // Memory allocated before remains usable.
  (void)backend->Allocate(1024);
}

// The tower's needs are known before allocation, and the error says what would fit.
TEST_F(CudaDeviceFailureTest, OutOfMemoryOfATowerNamesTheLayerAndWhatFits) {
  constexpr int64_t kTooMany = 1 << 15;
  const auto prepare = [&](int64_t count) {
    software_gpu::Reset({.memory_bytes = size_t{40} << 20});
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
    Tower tower(graph_, *backend, kSeed);
    tower.Plan(10, Mode::kInference);
    tower.Plan(count, Mode::kTraining);
    const size_t before = backend->memory_use().held;
    tower.Allocate();
    const TowerMemory memory = tower.memory();
    size_t available = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
    EXPECT_EQ(backend->memory_use().available, available);
    EXPECT_EQ(backend->memory_use().held - before,
              memory.training + memory.evaluation + memory.layouts);
  };
  std::string message;
  try {
    prepare(kTooMany);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kFailure);
    message = error.what();
  }
  EXPECT_THAT(message, AllOf(HasSubstr("activations of a slice of 32768 samples ("),
                             HasSubstr(" MB of it in layer "), HasSubstr("this worker requested "),
                             HasSubstr(" MB are free"), HasSubstr(" (run.slices)")));
  const std::string before = "; a slice of up to ";
  ASSERT_THAT(message, HasSubstr(before));
  const int64_t fits = std::stoll(message.substr(message.find(before) + before.size()));
  EXPECT_GT(fits, 10);
  EXPECT_NO_THROW(prepare(fits));
  EXPECT_THROW(prepare(fits + fits / 10), Error);
}

TEST_F(CudaDeviceFailureTest, OutOfMemoryOfWeightsSaysSo) {
  software_gpu::Reset({.memory_bytes = size_t{40} << 20});
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  const std::vector<float> weights(size_t{4} << 20);
  try {
    const DeviceView view(*backend, std::span<const float>(weights));
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("weights: out of memory"));
  }
}

TEST_F(CudaDeviceFailureTest, AWorkerKeepsToItsShareOfTheCard) {
  software_gpu::Reset({.memory_bytes = size_t{128} << 20});
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({.memory_fraction = 0.5}).backend;
  const DeviceMemoryUse use = backend->memory_use();
  EXPECT_EQ(use.available, (size_t{64} << 20) - use.held);
  (void)backend->Allocate(size_t{16} << 20);
  EXPECT_THROW((void)backend->Allocate(size_t{40} << 20), Error);
  EXPECT_EQ(backend->memory_use().held, use.held);
  EXPECT_EQ(backend->memory_use().most, use.held + (size_t{16} << 20));
  // Others use more than their share.
  void* others = nullptr;
  ASSERT_EQ(cudaMalloc(&others, size_t{80} << 20), cudaSuccess);
  EXPECT_LE(backend->memory_use().available, (size_t{48} << 20) - use.held);
  EXPECT_EQ(cudaFree(others), cudaSuccess);
}

}  // namespace
}  // namespace muster
