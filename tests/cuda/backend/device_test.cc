// The CUDA backend as the trainer uses it: a tower whose work is queued, and what happens when
// calls fail.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "common/base/error.h"
#include "common/base/shared_memory.h"
#include "common/base/unique_fd.h"
#include "tests/cuda/backend/device_step.h"
#include "tests/cuda/software_gpu/control.h"
#include "tests/nn/test_backend.h"
#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"
#include "worker/nn/self_test.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kPatience = 30;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { software_gpu::Reset({}); }
  void TearDown() override {
    EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
    software_gpu::Reset({});
  }

  // The gradients of a step, each layer's copied out behind it.
  std::vector<float> Step(bool held = false) {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
    backend->Enter();
    Tower tower(graph_, *backend, kSeed);
    tower.Prepare(batch_.Input().count, Mode::kTraining);
    Arena slot(graph_.arena_floats());
    std::fill(slot.floats().begin(), slot.floats().end(), 0.0f);
    DeviceView weights(*backend, weights_.floats()), gradients(*backend, slot.floats());
    Completions completions(*backend);
    LossSums sums;
    const DrainAtExit drain{*backend};
    const auto queue_step = [&] {
      weights.CopyIn(0, graph_.arena_floats());
      tower.Forward(batch_.Input(), Mode::kTraining, weights.floats(), ++version_, nullptr, sums);
      completions.Then(Queue::kCopyOut, [&] { ++reported_; });
      tower.Backward(1, weights.floats(), gradients.floats(), [&](int layer) {
        for (const Variable& v : graph_.variables()) {
          if (v.layer == layer) gradients.CopyOut(v.offset, v.offset + v.count);
        }
      });
      completions.Then(Queue::kCopyOut, [&] { ++reported_; });
    };
    if (held) {
      queue_step();  // the first one makes the events that all others use
      completions.RunAll(kPatience);
      reported_ = 0;
      const software_gpu::Step step;
      const software_gpu::Hold hold;
      queue_step();
      EXPECT_EQ(reported_, 0);
    } else {
      queue_step();
    }
    completions.RunAll(kPatience);
    return {slot.floats().begin(), slot.floats().end()};
  }

  // Of the CPU, with room for what floats in another order of sums may differ by.
  void ExpectRight(const std::vector<float>& got) const {
    const Arena expected = TowerRun(graph_).Step(batch_, weights_);
    for (const Variable& v : graph_.variables()) {
      const auto part = std::span(got).subspan(v.offset, v.count);
      EXPECT_LE(RelativeL2(part, ToDoubles(expected.floats().subspan(v.offset, v.count))), 1e-5)
          << v.name;
    }
  }

  const Graph graph_ = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights_ = RandomWeights(graph_);
  const SampleBatch batch_{graph_, 10, 4};
  CudaOptions options_;
  int reported_ = 0;
  int64_t version_ = 0;
};

// No stream does anything until a whole step is queued: the host waits for nothing in it, and
// allocates nothing.
TEST_F(CudaDeviceTest, AWholeStepIsQueuedWithoutWaiting) {
  ExpectRight(Step(true));
  EXPECT_EQ(reported_, 2);
}

// … whatever card it is: none of its calls goes to card 0, which every thread begins with.
TEST_F(CudaDeviceTest, WorksWithAnyCard) {
  software_gpu::Reset({.devices = 3});
  options_.card = 5;  // counted around
  std::thread([this] { ExpectRight(Step()); }).join();
  options_.card = 0;
}

TEST_F(CudaDeviceTest, RepeatsItsBits) { EXPECT_EQ(Step(), Step()); }

// Slices that travel in 16 bits have the CPU's bits: to nearest, ties to even.
TEST_F(CudaDeviceTest, SlicesAreRoundedAndAddedAsOnTheCpu) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  std::vector<float> a, b;
  for (uint32_t bits = 0x3f800000; bits < 0x3f840000; bits += 0x0801) {  // ties, too, of both types
    a.push_back(std::bit_cast<float>(bits & 0xfffff000));
    b.push_back(-0.3f * std::bit_cast<float>(bits));
  }
  const size_t bytes = a.size() * sizeof(float);
  const std::unique_ptr<DeviceBuffer> left = backend->Allocate(bytes),
                                      right = backend->Allocate(bytes),
                                      sum = backend->Allocate(bytes);
  const DrainAtExit drain{*backend};
  for (const ElementType wire : {ElementType::kBFloat16, ElementType::kFloat16}) {
    std::vector<float> expected(a), got(a.size()), expected_sum(a.size()), got_sum(a.size());
    RoundTo(wire, expected);
    AddRounded(wire, expected.data(), b.data(), expected_sum.data(), b.size());
    backend->CopyIn(left->data(), a.data(), bytes);
    backend->CopyIn(right->data(), b.data(), bytes);
    backend->Drain();
    auto* const values = static_cast<float*>(left->data());
    backend->RoundSlice(wire, values, a.size());
    backend->AddSlices(wire, values, static_cast<const float*>(right->data()),
                       static_cast<float*>(sum->data()), a.size());
    backend->Drain();
    backend->CopyOut(got.data(), left->data(), bytes);
    backend->CopyOut(got_sum.data(), sum->data(), bytes);
    backend->Drain();
    EXPECT_EQ(got, expected);
    EXPECT_EQ(got_sum, expected_sum);
  }
}

// Host memory that is not page-locked goes through a ring of pieces. A piece is filled again only
// when its copy is done: here there are twice as many pieces as the ring has.
TEST_F(CudaDeviceTest, CopiesOfUnlockedMemoryWaitForTheirPieces) {
  software_gpu::Reset({.delay_us = 20000});
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  std::vector<uint32_t> there(size_t{32} << 18), back(there.size());  // 32 MiB, no two pieces alike
  for (size_t i = 0; i < there.size(); ++i) there[i] = static_cast<uint32_t>(i * 2654435761u);
  const size_t bytes = there.size() * sizeof there[0];
  const std::unique_ptr<DeviceBuffer> buffer = backend->Allocate(bytes);
  const DrainAtExit drain{*backend};
  backend->CopyIn(buffer->data(), there.data(), bytes);
  backend->Drain();
  backend->CopyOut(back.data(), buffer->data(), bytes);
  backend->Drain();
  EXPECT_TRUE(back == there);
}

// Its driver never comes back from the wait.
TEST_F(CudaDeviceTest, AGpuThatHangsEndsTheProcessInTime) {
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

// Sums are added up in an order that the shape decides, whether a thread does one number or many.
TEST_F(CudaDeviceTest, TheBitsDoNotDependOnTheNumberOfMultiprocessors) {
  for (const NetworkCase& network : kNetworks) {
    const Graph graph = reference::MakeGraph(network.layers, network.input);
    const Arena weights = RandomWeights(graph);
    const SampleBatch batch(graph, 0, 13);
    std::vector<std::vector<float>> gradients;
    for (const int multiprocessors : {1, 132}) {
      software_gpu::Reset({.multiprocessors = multiprocessors});
      const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
      gradients.push_back(StepOn(*backend, graph, weights, batch));
    }
    EXPECT_EQ(gradients[0], gradients[1]) << network.name;
  }
}

// A process may write there; it is asked without writing.
bool IsWritable(const SharedMemory& memory) {
  const UniqueFd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  return ::read(zeros.get(), memory.writable_floats().data(), 1) == 1;
}

// Memory that is mapped for reading alone can be written only while the driver locks its pages.
TEST_F(CudaDeviceTest, LocksPagesThatAreMappedForReading) {
  constexpr size_t kFloats = 3000;  // no whole number of pages
  using Access = SharedMemory::Access;
  for (const bool supported : {false, true}) {
    software_gpu::Reset({.read_only_registration = supported});
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
    const SharedMemory server =
        SharedMemory::Create("test-weights", kFloats * sizeof(float), Access::kReadWrite);
    const SharedMemory worker =
        SharedMemory::Map(UniqueFd(::fcntl(server.fd(), F_DUPFD_CLOEXEC, 0)), Access::kRead);
    const HostMemory weights{"weights", worker.floats().data(), worker.bytes(), true};
    const auto registration = backend->Register(weights);
    EXPECT_NE(registration, nullptr);
    EXPECT_FALSE(IsWritable(worker));
    // No page is locked twice: whoever tries is told so, and copies all the same.
    EXPECT_EQ(backend->Register(weights), nullptr);
    EXPECT_FALSE(IsWritable(worker));
    EXPECT_EQ(software_gpu::Calls("cudaHostRegister"), 2);
  }
}

// Its server has sealed it: there is no way to lock it, and what comes of it goes through rings.
TEST_F(CudaDeviceTest, CopiesSealedMemoryThatItCannotLock) {
  constexpr size_t kFloats = 3000;
  using Access = SharedMemory::Access;
  SharedMemory server =
      SharedMemory::Create("test-weights", kFloats * sizeof(float), Access::kReadWrite);
  server.SealAgainstNewWriters();
  server.writable_floats()[kFloats - 1] = 5;
  const SharedMemory worker =
      SharedMemory::Map(UniqueFd(::fcntl(server.fd(), F_DUPFD_CLOEXEC, 0)), Access::kRead);
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  DeviceView weights(*backend, worker.floats(), /*read_only=*/true);
  EXPECT_EQ(software_gpu::Calls("cudaHostRegister"), 0);
  weights.CopyIn(0, kFloats);
  backend->Drain();
  std::vector<float> got(kFloats);
  backend->CopyOut(got.data(), weights.floats().data(), kFloats * sizeof(float));
  backend->Drain();
  EXPECT_EQ(got[kFloats - 1], 5);
}

int FailureOf(const std::string& call) {
  if (call.starts_with("cublas")) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (call.starts_with("cudnn")) return CUDNN_STATUS_EXECUTION_FAILED;
  return cudaErrorUnknown;
}

// Frees what others made, and so leaks when it fails, or waits so that others can be freed.
bool IsCleaning(const std::string& call) {
  for (const char* const word : {"Destroy", "Free", "Unregister", "Synchronize", "GetError"}) {
    if (call.find(word) != std::string::npos) return true;
  }
  return false;
}

// Each function that a step calls, failing once, the first, second and last time: an Error, or,
// where there is another way, the right result; never a hang, and nothing is left behind.
TEST_F(CudaDeviceTest, ACallThatFailsIsAnErrorOrDoesNotMatter) {
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

TEST_F(CudaDeviceTest, OutOfMemorySaysWhatWasWantedAndWhatIsThere) {
  software_gpu::Reset({.memory_bytes = size_t{64} << 20});
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  try {
    (void)backend->Allocate(size_t{40} << 20);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kFailure);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("out of memory"), HasSubstr("was asked for 41.9 MB more"),
                      HasSubstr("of its 67.1 MB are free"), HasSubstr("holds 33.6 MB")));
  }
  // What it got stays usable.
  (void)backend->Allocate(1024);
}

// What a tower wants is known before it is allocated, and the error says what would do.
TEST_F(CudaDeviceTest, OutOfMemoryOfATowerNamesTheLayerAndWhatFits) {
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
                             HasSubstr(" MB of layer "), HasSubstr("was asked for "),
                             HasSubstr(" MB are free"), HasSubstr(" (run.slices)")));
  const std::string before = "; a slice of up to ";
  ASSERT_THAT(message, HasSubstr(before));
  const int64_t fits = std::stoll(message.substr(message.find(before) + before.size()));
  EXPECT_GT(fits, 10);
  EXPECT_NO_THROW(prepare(fits));
  EXPECT_THROW(prepare(fits + fits / 10), Error);
}

TEST_F(CudaDeviceTest, OutOfMemoryOfWeightsSaysSo) {
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

TEST_F(CudaDeviceTest, AWorkerKeepsToItsShareOfTheCard) {
  software_gpu::Reset({.memory_bytes = size_t{128} << 20});
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({.memory_fraction = 0.5}).backend;
  (void)backend->Allocate(size_t{16} << 20);
  EXPECT_THROW((void)backend->Allocate(size_t{40} << 20), Error);
}

// What MakeCudaWorker says of a card that it cannot work with.
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

TEST_F(CudaDeviceTest, WithoutACardOrDriverALineSaysSo) {
  software_gpu::Reset({.devices = 0});
  try {
    (void)cuda::MakeCudaWorker({});
    ADD_FAILURE() << "expected an error";
  } catch (const NoGpu& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no card that CUDA can use"));
  }
  software_gpu::Reset({});
  software_gpu::FailCall("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver);
  try {
    (void)cuda::MakeCudaWorker({});
    ADD_FAILURE() << "expected an error";
  } catch (const NoGpu& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("CPU")));
  }
  // The launcher has found this one: no reason to compute beside the GPUs of others on the CPU.
  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-0123", 1);
  software_gpu::Reset({.devices = 0});
  EXPECT_THAT(Refusal({}), HasSubstr("the card of this worker (GPU-0123) cannot be found"));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

// Said before the first step.
TEST_F(CudaDeviceTest, ACardThatTheBuildHasNoCodeForIsNamed) {
  for (const cudaError_t error :
       {cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion}) {
    software_gpu::Reset({.compute_major = 6, .compute_minor = 1});
    software_gpu::FailCall("cudaFuncGetAttributes", 1, error);
    EXPECT_THAT(Refusal({}),
                AllOf(HasSubstr("this build has no code that Software GPU (sm_61) runs"),
                      HasSubstr("MUSTER_CUDA_ARCHITECTURES")));
  }
}

TEST_F(CudaDeviceTest, Bf16NeedsACardThatHasIt) {
  software_gpu::Reset({.compute_major = 7, .compute_minor = 5});
  EXPECT_THAT(Refusal({.precision = CudaOptions::Precision::kBf16}),
              AllOf(HasSubstr("sm_75"), HasSubstr("worker.precision=FP32")));
  EXPECT_THAT(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kTf32}).arithmetic,
              HasSubstr(", FP32 (this card has no TF32), "));
}

// … and what a variable of the environment makes of it.
TEST_F(CudaDeviceTest, TheBitsNameWhatOverridesTheLibraries) {
  ::setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  EXPECT_THAT(cuda::MakeCudaWorker({.precision = CudaOptions::Precision::kTf32}).arithmetic,
              HasSubstr(", NVIDIA_TF32_OVERRIDE=0"));
  ::unsetenv("NVIDIA_TF32_OVERRIDE");
}

// cuDNN said that it does this convolution when it was asked for its workspace. It is tried before
// the first step, so that the arithmetic never changes after that.
TEST_F(CudaDeviceTest, WhatCudnnDoesNotSupportIsFoundBeforeTheFirstStep) {
  const std::vector<float> by_cudnn = Step();
  const int products = software_gpu::Calls("cublasGemmEx");
  for (const char* const call : {"cudnnConvolutionForward", "cudnnConvolutionBackwardData",
                                 "cudnnConvolutionBackwardFilter"}) {
    software_gpu::Reset({});
    software_gpu::FailCall(call, 1, CUDNN_STATUS_NOT_SUPPORTED);
    const std::vector<float> gradients = Step();
    ExpectRight(gradients);
    EXPECT_GT(software_gpu::Calls("cublasGemmEx"), products) << call;
    EXPECT_EQ(Step(), by_cudnn);
  }
}

TEST_F(CudaDeviceTest, WhatCudnnDoesNotSupportAfterItsTrialIsAnError) {
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

// A worker that has no step left does without the test before the first step, and must say the
// same.
TEST_F(CudaDeviceTest, TheTestBeforeTheFirstStepChangesNothingOfTheLineOfConvolutions) {
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

// Another worker may have the memory, and would compute other bits.
TEST_F(CudaDeviceTest, OnlyWhatIsNotSupportedIsLeftToOthers) {
  for (const char* const call :
       {"cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter",
        "cudnnGetConvolutionForwardWorkspaceSize", "cudnnGetConvolutionBackwardDataWorkspaceSize",
        "cudnnGetConvolutionBackwardFilterWorkspaceSize", "cudnnSetConvolution2dDescriptor"}) {
    software_gpu::Reset({});
    software_gpu::FailCall(call, 1, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    EXPECT_THROW((void)Step(), Error) << call;
  }
}

// An installation without all of its libraries, or a card that it no longer serves: as without it,
// unless the config insists.
TEST_F(CudaDeviceTest, ACudnnThatDoesNotWorkHereIsDoneWithout) {
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
  // What another attempt may not say is no reason to go on with other bits.
  software_gpu::Reset({});
  software_gpu::FailCall("cudnnCreate", 1, CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED);
  EXPECT_THAT(Refusal({}), HasSubstr("cannot start cuDNN"));
}

// Nor does a worker then compute on the CPU, for which any other Error is a reason.
TEST_F(CudaDeviceTest, TooLittleMemoryToStartWithIsItsOwnError) {
  for (const cudnnStatus_t status : {CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                                     CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED}) {
    software_gpu::Reset({});
    software_gpu::FailCall("cudnnCreate", 1, status);
    EXPECT_THROW((void)cuda::MakeCudaWorker({}), OutOfDeviceMemory);
  }
  software_gpu::Reset({});
  software_gpu::FailCall("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  try {
    (void)cuda::MakeCudaWorker({});
    ADD_FAILURE() << "expected an error";
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("this host"), ::testing::Not(HasSubstr("card"))));
  }
}

TEST_F(CudaDeviceTest, ALostCardIsAnErrorAtTheNextLook) {
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

}  // namespace
}  // namespace muster
