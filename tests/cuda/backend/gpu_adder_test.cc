// A relay's adder on the software GPU, with gradients of its own process.
#include "worker/backend/cuda/gpu_adder.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/cuda/backend/device_fixture.h"

namespace muster {
namespace {

class CudaGpuAdderTest : public CudaDeviceTest {
 protected:
  static std::string ErrorOf(const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

// Floats in the memory of a GPU.
class Gradients {
 public:
  explicit Gradients(Backend& backend) : backend_(backend) {}

  // Returns `count` of them: first, first + 1, …
  const float* Make(size_t count, float first) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
    made_.push_back(backend_.Allocate(count * sizeof(float)));
    backend_.CopyIn(made_.back()->data(), values.data(), count * sizeof(float));
    backend_.Drain();
    return static_cast<const float*>(made_.back()->data());
  }

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<DeviceBuffer>> made_;
};

// A chunk may be larger than the one whose sum was in the same place.
TEST_F(CudaGpuAdderTest, ChunksMayHaveAnySize) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker({}).backend;
  backend->Enter();
  Gradients gradients(*backend);
  const std::unique_ptr<GpuAdder> adder = cuda::MakeGpuAdder({});
  adder->Reserve(2, 2000);
  std::shared_ptr<const float> earlier;
  for (const size_t count : {3, 100, 70, 2000, 3}) {
    const float* const a = gradients.Make(count, 1);
    const float* const b = gradients.Make(count, 10);
    const float* const right = adder->Add(a, b, count, 1);
    const float* const left = adder->Add(b, b, count, 0);
    const std::shared_ptr<const float> sum = adder->Bring(adder->Add(left, right, count, 0), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(sum.get()[i], 31 + 4 * static_cast<float>(i));
    if (earlier != nullptr) {
      EXPECT_EQ(earlier.get()[2], 39);  // it is not overwritten while somebody holds it
    }
    earlier = sum;
  }
}

TEST_F(CudaGpuAdderTest, AHandleOfTheWrongSizeIsAnError) {
  const std::unique_ptr<GpuAdder> adder = cuda::MakeGpuAdder({});
  constexpr size_t kBytes = sizeof(cudaIpcMemHandle_t::reserved);
  for (const size_t bytes : {size_t{0}, kBytes - 1, kBytes + 1}) {
    EXPECT_THAT(ErrorOf([&] { (void)adder->Open(std::string(bytes, 'x')); }),
                ::testing::HasSubstr("has a handle of " + std::to_string(bytes) + " bytes"));
  }
  EXPECT_EQ(software_gpu::Calls("cudaIpcOpenMemHandle"), 0);
}

TEST_F(CudaGpuAdderTest, ReadsTheMemoryOfAllOtherGpus) {
  for (int other = 1; other < 4; ++other) {
    software_gpu::Reset({.devices = 4});
    software_gpu::FailCall("cudaDeviceCanAccessPeer", other, cudaErrorPeerAccessUnsupported);
    EXPECT_NE(ErrorOf([] { (void)cuda::MakeGpuAdder({}); }), "") << other;
  }
}

}  // namespace
}  // namespace muster
