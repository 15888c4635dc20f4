// The CUDA backend as the trainer uses it: towers with queued work, and copies.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/base/shared_memory.h"
#include "tests/cuda/backend/device_fixture.h"
#include "tests/nn/host_facing.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/image/augment.h"

namespace muster {
namespace {

// The streams are held until a whole step is queued, so the host must neither wait nor allocate.
TEST_F(CudaDeviceTest, AWholeStepIsQueuedWithoutWaiting) {
  ExpectRight(Step(true));
  EXPECT_EQ(reported_, 2);
}

// No call goes to GPU 0, which is every thread's default.
TEST_F(CudaDeviceTest, WorksWithAnyCard) {
  software_gpu::Reset({.devices = 3});
  options_.card = 4;  // counted modulo the number of GPUs
  int card = 0;
  std::thread([&] {
    ExpectRight(Step());
    EXPECT_EQ(cudaGetDevice(&card), cudaSuccess);
  }).join();
  EXPECT_EQ(card, 1);
  options_.card = 0;
}

TEST_F(CudaDeviceTest, RepeatsItsBits) { EXPECT_EQ(Step(), Step()); }

// Slices sent in 16 bits have the CPU's bits: round to nearest, ties to even.
TEST_F(CudaDeviceTest, SlicesAreRoundedAndAddedAsOnTheCpu) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  std::vector<float> a, b;
  for (uint32_t bits = 0x3f800000; bits < 0x3f840000;
       bits += 0x0801) {  // includes ties of both types
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

// The server flushes denormals, so a GPU that adds slices must, too: else the bits would depend on
// the number of workers.
TEST_F(CudaDeviceTest, SumsOfSlicesFlushDenormals) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  constexpr float kLeast = std::numeric_limits<float>::min(), kTiny = kLeast / 4;
  // The last sum is the largest denormal. In 16 bits it would be rounded up to kLeast.
  const std::vector<float> a{kTiny, kTiny, -kTiny, 3 * kTiny, 1.5f * kLeast, -kLeast, 2 * kLeast},
      b{kTiny, kLeast, -kTiny, -kTiny, -kLeast, 0, -std::nextafter(kLeast, 1.0f)},
      expected{0, kLeast, -0.0f, 0, 0, -kLeast, 0};
  const size_t bytes = a.size() * sizeof(float);
  const std::unique_ptr<DeviceBuffer> left = backend->Allocate(bytes),
                                      right = backend->Allocate(bytes);
  const DrainAtExit drain{*backend};
  for (const ElementType wire :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    backend->CopyIn(left->data(), a.data(), bytes);
    backend->CopyIn(right->data(), b.data(), bytes);
    backend->Drain();
    auto* const sums = static_cast<float*>(left->data());
    backend->AddSlices(wire, sums, static_cast<const float*>(right->data()), sums, a.size());
    backend->Drain();
    std::vector<float> got(a.size());
    backend->CopyOut(got.data(), sums, bytes);
    backend->Drain();
    for (size_t i = 0; i < a.size(); ++i) {
      const float want = wire == ElementType::kFloat16 ? 0 * expected[i] : expected[i];
      EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want)) << i;
    }
  }
}

TEST_F(CudaDeviceTest, MirrorsImagesAndAveragesLogitsAsOnTheCpu) {
  const Shape shape{3, 5, 2};
  const std::vector<float> images = RandomFloats(4 * shape.elements(), 1),
                           others = RandomFloats(4 * shape.elements(), 2);
  const auto count = static_cast<int64_t>(images.size());
  for (const bool bf16 : {false, true}) {
    options_.precision = bf16 ? CudaOptions::Precision::kBf16 : CudaOptions::Precision::kFp32;
    const auto run = [&](std::shared_ptr<Backend> device) {
      const std::unique_ptr<Backend> backend = MakeHostFacing(std::move(device));
      backend->Enter();
      std::vector<float> results(images.size()), means = images;
      backend->MirrorImages(results.data(), images.data(), 4, shape);
      backend->AverageLogits(ElementType::kFloat32, means.data(), others.data(), count);
      results.insert(results.end(), means.begin(), means.end());
      return results;
    };
    EXPECT_EQ(run(cuda::MakeCudaWorker(options_).backend), run(MakeCpuBackend(1, {.bf16 = bf16})));
  }
}

TEST_F(CudaDeviceTest, ScalesPixelsToTheBitsOfTheNormalizer) {
  const Normalizer normalizer(std::vector{0.485, 0.456, 0.406}, std::vector{0.229, 0.224, 0.225});
  std::vector<uint8_t> pixels(3 * 256);  // each byte in each channel
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i / 3);
  const auto count = std::ssize(pixels);
  std::vector<float> expected(pixels.size());
  normalizer.Apply(pixels.data(), count, expected.data());
  for (const auto precision : {CudaOptions::Precision::kFp32, CudaOptions::Precision::kBf16}) {
    options_.precision = precision;
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
    backend->Enter();
    const auto from = backend->Allocate(pixels.size()),
               to = backend->Allocate(pixels.size() * sizeof(float));
    const DrainAtExit drain{*backend};
    backend->CopyIn(from->data(), pixels.data(), pixels.size());
    backend->Drain();
    backend->ScalePixels(to->data(), static_cast<const uint8_t*>(from->data()), count,
                         normalizer.scale());
    backend->Drain();
    std::vector<float> got(pixels.size());
    std::vector<uint16_t> halves(pixels.size());
    if (precision == CudaOptions::Precision::kFp32) {
      backend->CopyOut(got.data(), to->data(), got.size() * sizeof(float));
      backend->Drain();
    } else {
      backend->CopyOut(halves.data(), to->data(), halves.size() * sizeof(uint16_t));
      backend->Drain();
      FromHalves(backend->activation_type(), halves, got.data());
      RoundTo(backend->activation_type(), expected);
    }
    EXPECT_EQ(got, expected);
  }
}

// Copies of host memory that is not page-locked go through a ring of pieces. A piece is reused only
// when its copy is done. Here there are twice as many pieces as the ring has.
TEST_F(CudaDeviceTest, CopiesOfUnlockedMemoryWaitForTheirPieces) {
  software_gpu::Reset({.delay_us = 20000});
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  std::vector<uint32_t> there(size_t{32} << 18), back(there.size());  // 32 MiB, all pieces differ
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

// The shape decides the order of summation, whether a thread handles one number or many.
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

// Kernels count the elements of a batch in 31 bits.
TEST_F(CudaDeviceTest, RefusesBatchesThatItCannotCount) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  const Layer layer = reference::MakeLayer("relu {}", {1, 1, 1 << 16});
  EXPECT_NO_THROW((void)backend->MakeOp(layer, {.batch = (1 << 15) - 1}));
  for (const int64_t batch : {int64_t{1} << 15, int64_t{1} << 16, int64_t{1} << 40}) {
    EXPECT_THROW((void)backend->MakeOp(layer, {.batch = batch}), Error) << batch;
  }
}

// TF32 has ten bits after the point, so it takes 1 + 2^-12 for 1. FP32 never becomes TF32.
TEST_F(CudaDeviceTest, ProductsAreInTheChosenPrecision) {
  using Convolution = CudaOptions::Convolution;
  const float x = 1 + 0x1p-12f;
  for (const bool tf32 : {false, true}) {
    for (const Convolution convolution : {Convolution::kCudnn, Convolution::kGemm}) {
      options_.precision = tf32 ? CudaOptions::Precision::kTf32 : CudaOptions::Precision::kFp32;
      options_.convolution = convolution;
      const std::unique_ptr<Backend> backend =
          MakeHostFacing(cuda::MakeCudaWorker(options_).backend);
      for (const char* const layer : {"dense { units: 1 }", "dense { units: 1 use_bias: false }",
                                      "conv2d { filters: 1 kernel: 1 use_bias: false }"}) {
        const bool bias = std::string(layer) == "dense { units: 1 }";
        const OpInputs inputs{.inputs = {{x}},
                              .dy = {x},
                              .weights = {1},
                              .bias = std::vector<float>(bias ? 1 : 0, 0.0f)};
        const OpResult got = RunOp(*backend, {.layer = layer, .input = {1, 1, 1}}, inputs);
        const float expected = tf32 ? 1 : x, squared = tf32 ? 1 : x * x;
        EXPECT_EQ(got.output.floats()[0], expected) << layer;
        EXPECT_EQ(got.dx[0].floats()[0], expected) << layer;
        EXPECT_EQ(got.dw.floats()[0], squared) << layer;
      }
    }
  }
}

// The CPU backend ends the process there; a GPU cannot, so the loss says it.
TEST_F(CudaDeviceTest, ALabelOutOfRangeMakesTheLossNan) {
  const std::unique_ptr<Backend> backend = MakeHostFacing(cuda::MakeCudaWorker(options_).backend);
  backend->Enter();
  for (const char* const loss :
       {"softmax_cross_entropy {}", "mean_squared_error {}", "sigmoid_cross_entropy {}"}) {
    const Graph graph = reference::MakeGraph(
        fmt::format("layer {{ name: 'out' dense {{ units: 3 }} }} layer {{ name: 'loss' {} }}",
                    loss),
        {1, 1, 4});
    const auto op = backend->MakeLoss(graph.layers().back(), {.batch = 2});
    const Arena logits = ToArena({1, 2, 3, 3, 2, 1});
    for (const int32_t label : {0, 2, -1, 3, -2, 1 << 20}) {
      Arena state(op->state_bytes() / sizeof(float));
      const std::vector<int32_t> labels = {1, label};
      LossSums sums;
      std::vector<int32_t> predictions(2);
      op->Forward({.logits = logits.floats().data(),
                   .labels = labels.data(),
                   .state = state.floats().data()},
                  &sums, predictions.data());
      EXPECT_EQ(std::isnan(sums.loss), label < -1 || label > 2) << loss << " label " << label;
    }
  }
}

TEST_F(CudaDeviceTest, ReadsTheWeightsOfClasses) {
  const Graph graph = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights = RandomWeights(graph);
  const SampleBatch batch(graph, 0, 13);
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  std::vector<float> twice = StepOn(*backend, graph, weights, batch);
  for (float& gradient : twice) gradient *= 2;
  EXPECT_EQ(StepOn(*backend, graph, weights, batch, std::vector<float>(10, 2.0f)), twice);
}

// Whether the process may write there. Does not write.
bool IsWritable(const SharedMemory& memory) {
  const UniqueFd zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  return ::read(zeros.get(), memory.writable_floats().data(), 1) == 1;
}

// Memory mapped read-only becomes writable only while the driver locks its pages.
TEST_F(CudaDeviceTest, LocksPagesThatAreMappedForReading) {
  constexpr size_t kFloats = 3000;  // not a whole number of pages
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
    // No page is locked twice. A second attempt returns null, and copies still work.
    EXPECT_EQ(backend->Register(weights), nullptr);
    EXPECT_FALSE(IsWritable(worker));
    EXPECT_EQ(software_gpu::Calls("cudaHostRegister"), 2);
  }
}

// The server has sealed this memory, so it cannot be locked. Copies from it go through rings.
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

}  // namespace
}  // namespace muster
