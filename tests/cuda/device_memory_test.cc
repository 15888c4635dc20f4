// Memory and copies on the software GPU: correct programs work, wrong ones are detected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <vector>

#include "tests/cuda/gpu_fixture.h"

namespace muster::software_gpu {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using DeviceMemoryTest = GpuTest;

TEST_F(DeviceMemoryTest, CopiesThereAndBack) {
  const float* const there = Upload<float>({1, 2, 3});
  EXPECT_THAT(Download(there, 3), ElementsAre(1, 2, 3));
}

TEST_F(DeviceMemoryTest, CopiesOnTheDeviceAndSets) {
  const float* const from = Upload<float>({1, 2, 3});
  float* const to = Allocate<float>(3);
  ASSERT_EQ(cudaMemcpyAsync(to, from, 12, cudaMemcpyDeviceToDevice, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(to + 1, 0, 4, stream_), cudaSuccess);
  EXPECT_THAT(Download(to, 3), ElementsAre(1, 0, 3));
}

TEST_F(DeviceMemoryTest, MemoryIsAlignedAsPromisedAndNoMore) {
  const auto at = reinterpret_cast<uintptr_t>(Allocate<char>(1));
  EXPECT_EQ(at % 512, 256u);
}

TEST_F(DeviceMemoryTest, SaysWhatMemoryIsLeft) {
  Start({.memory_bytes = 1000});
  (void)Allocate<char>(600);
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, 400u);
  EXPECT_EQ(total, 1000u);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(DeviceMemoryTest, AddressesAreNotUsedAgain) {
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, 100), cudaSuccess);
  ASSERT_EQ(cudaFree(first), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&second, 100), cudaSuccess);
  EXPECT_NE(first, second);
  ASSERT_EQ(cudaFree(second), cudaSuccess);
}

TEST_F(DeviceMemoryTest, HostAccessDies) {
  const float* const there = Upload<float>({1, 2, 3});
  EXPECT_DEATH(std::memset(const_cast<float*>(there), 0, 4),
               "the host touches device memory: byte 0 of an allocation of 12 bytes");
}

TEST_F(DeviceMemoryTest, LeaksDie) {
  EXPECT_DEATH(
      {
        void* memory = nullptr;
        cudaMalloc(&memory, 100);
        std::exit(0);
      },
      "device memory of 100 bytes");
}

TEST_F(DeviceMemoryTest, FindsWrongFrees) {
  void* const memory = Allocate<char>(100);
  char on_host = 0;
  ViolationRecorder recorder;
  EXPECT_EQ(cudaFree(static_cast<char*>(memory) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(&on_host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(&on_host), cudaErrorInvalidValue);
  EXPECT_EQ(recorder.Take().size(), 3u);
}

TEST_F(DeviceMemoryTest, FindsWrongCopies) {
  char* const there = Allocate<char>(100);
  char* const here = AllocateHost<char>(100);
  std::vector<char> pageable(100);
  ViolationRecorder recorder;
  const auto copy = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, bytes, kind, stream_), cudaErrorInvalidValue);
    return recorder.Take();
  };
  EXPECT_THAT(copy(there, pageable.data(), 100, cudaMemcpyHostToDevice),
              ElementsAre(HasSubstr("not page-locked")));
  EXPECT_THAT(copy(pageable.data(), there, 100, cudaMemcpyDeviceToHost),
              ElementsAre(HasSubstr("not page-locked")));
  EXPECT_THAT(copy(there, here, 101, cudaMemcpyHostToDevice),
              ElementsAre(HasSubstr("not page-locked")));
  EXPECT_THAT(copy(there + 50, here, 51, cudaMemcpyHostToDevice),
              ElementsAre(HasSubstr("byte 50 of an allocation of 100 bytes")));
  EXPECT_THAT(copy(here, there, 100, cudaMemcpyHostToDevice),
              ElementsAre(HasSubstr("a device address where a host address is expected")));
  EXPECT_THAT(copy(there, here, 100, cudaMemcpyDefault),
              ElementsAre(HasSubstr("a copy without a direction")));
}

TEST_F(DeviceMemoryTest, FindsTheDefaultStream) {
  char* const there = Allocate<char>(100);
  char* const here = AllocateHost<char>(100);
  ViolationRecorder recorder;
  EXPECT_NE(cudaMemcpyAsync(there, here, 100, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  EXPECT_NE(cudaMemsetAsync(there, 0, 100, cudaStreamPerThread), cudaSuccess);
  cudaStream_t blocking = nullptr;
  EXPECT_NE(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
  EXPECT_THAT(recorder.Take(), AllOf(SizeIs(3), Each(HasSubstr("default stream"))));
}

TEST_F(DeviceMemoryTest, ACopyReadsItsSourceLate) {
  char* const there = Allocate<char>(4);
  char* const here = AllocateHost<char>(4);
  std::memset(here, 1, 4);
  {
    const Hold hold;
    ASSERT_EQ(cudaMemcpyAsync(there, here, 4, cudaMemcpyHostToDevice, stream_), cudaSuccess);
    std::memset(here, 2, 4);
  }
  EXPECT_THAT(Download(there, 4), Each(2));
}

TEST_F(DeviceMemoryTest, ACopySpoilsItsDestinationAtOnce) {
  const char* const there = Upload(std::vector<char>(4, 1));
  char* const here = AllocateHost<char>(4);
  std::memset(here, 0, 4);
  {
    const Hold hold;
    ASSERT_EQ(cudaMemcpyAsync(here, there, 4, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    EXPECT_EQ(here[0], -1);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(here[0], 1);
}

TEST_F(DeviceMemoryTest, FindsMemoryGivenBackThatACopyUses) {
  char* const there = Allocate<char>(100);
  std::vector<char> host(100);
  ASSERT_EQ(cudaHostRegister(host.data(), host.size(), cudaHostRegisterDefault), cudaSuccess);
  ViolationRecorder recorder;
  {
    const Hold hold;
    ASSERT_EQ(cudaMemcpyAsync(there, host.data(), 100, cudaMemcpyHostToDevice, stream_),
              cudaSuccess);
    EXPECT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  }
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("is freed during a copy")));
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

// Whole pages are locked, each at most once.
TEST_F(DeviceMemoryTest, RegistersNoTwoRangesOfOnePage) {
  char* const page = static_cast<char*>(std::aligned_alloc(4096, 8192));
  ASSERT_EQ(cudaHostRegister(page, 100, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(page + 2000, 100, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(page + 4096, 100, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(page), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(page + 4096), cudaSuccess);
  std::free(page);
}

TEST_F(DeviceMemoryTest, RegistersHostMemoryOnce) {
  std::vector<char> host(100);
  ASSERT_EQ(cudaHostRegister(host.data(), 100, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host.data() + 50, 10, cudaHostRegisterDefault),
            cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaSuccess);
  ViolationRecorder recorder;
  EXPECT_EQ(cudaHostUnregister(host.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(recorder.Take().size(), 1u);
}

TEST_F(DeviceMemoryTest, ReadOnlyMemoryWantsTheFlagAndTheFlagACard) {
  Start({.read_only_registration = true});
  constexpr size_t kBytes = 4096;
  void* const page = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(cudaHostRegister(page, kBytes, cudaHostRegisterDefault), cudaErrorInvalidValue);
  ASSERT_EQ(cudaHostRegister(page, kBytes, cudaHostRegisterReadOnly), cudaSuccess);
  char* const there = Allocate<char>(kBytes);
  EXPECT_EQ(cudaMemcpyAsync(there, page, kBytes, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  ViolationRecorder recorder;
  EXPECT_NE(cudaMemcpyAsync(page, there, kBytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_THAT(recorder.Take(), ElementsAre(HasSubstr("registered as read-only")));
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(cudaHostUnregister(page), cudaSuccess);
  munmap(page, kBytes);
}

TEST_F(DeviceMemoryTest, ByDefaultThereIsNoReadOnlyRegistration) {
  std::vector<char> host(100);
  EXPECT_EQ(cudaHostRegister(host.data(), 100, cudaHostRegisterReadOnly), cudaErrorNotSupported);
  int supported = 1;
  EXPECT_EQ(cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterReadOnlySupported, 0),
            cudaSuccess);
  EXPECT_EQ(supported, 0);
}

}  // namespace
}  // namespace muster::software_gpu
