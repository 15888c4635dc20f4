// The queues of the CUDA backend: what waits for them, and which copies go through the rings.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/cuda/backend/device_fixture.h"

namespace muster {
namespace {

class CudaQueuesTest : public CudaDeviceTest {
 protected:
  // Queues slow work on one of the backend's streams, calls `wait`, and expects that it is done.
  static void ExpectWaitsFor(Queue queue, const std::function<void()>& wait) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    software_gpu::QueueWork(static_cast<int>(queue), [done] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      *done = true;
    });
    wait();
    EXPECT_TRUE(*done) << "queue " << static_cast<int>(queue);
  }
  static constexpr Queue kQueues[] = {Queue::kCompute, Queue::kCopyIn, Queue::kCopyOut,
                                      Queue::kInput};
};

TEST_F(CudaQueuesTest, DrainWaitsForEachQueue) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  for (const Queue queue : kQueues) ExpectWaitsFor(queue, [&] { backend->Drain(); });
}

TEST_F(CudaQueuesTest, AnEventIsAwaitedNoLongerThanAsked) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  const std::unique_ptr<Event> event = backend->MakeEvent();
  EXPECT_TRUE(event->IsDone());
  std::atomic<bool> may_end = false;
  software_gpu::QueueWork(static_cast<int>(Queue::kCopyIn), [&] {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point latest = Clock::now() + std::chrono::seconds(20);
    while (!may_end && Clock::now() < latest) std::this_thread::yield();
  });
  backend->Record(Queue::kCopyIn, *event);
  EXPECT_FALSE(event->IsDone());
  EXPECT_FALSE(event->Wait(0.01));
  may_end = true;
  EXPECT_TRUE(event->Wait(kPatience));
}

// Whichever way the host learns of it.
TEST_F(CudaQueuesTest, ACopyHasArrivedWhenItsEventIsDone) {
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  const std::vector<float> there = {1, 2, 3};
  std::vector<float> back[2] = {std::vector<float>(3), std::vector<float>(3)};
  const std::unique_ptr<DeviceBuffer> buffer = backend->Allocate(12);
  const DrainAtExit drain{*backend};
  backend->CopyIn(buffer->data(), there.data(), 12);
  backend->Drain();
  for (const bool polls : {true, false}) {
    std::vector<float>& to = back[polls ? 0 : 1];
    const std::unique_ptr<Event> event = backend->MakeEvent();
    backend->CopyOut(to.data(), buffer->data(), 12);
    backend->Record(Queue::kCopyOut, *event);
    if (polls) {
      while (!event->IsDone()) std::this_thread::yield();
    } else {
      EXPECT_TRUE(event->Wait(kPatience));
    }
    EXPECT_EQ(to, there);
  }
}

// The device reads and writes locked memory itself, with one copy. All other memory goes through
// the rings, in pieces of 64 KiB on its way out: memory that is no longer locked, and memory of
// which only the first part is.
TEST_F(CudaQueuesTest, OnlyLockedMemoryIsCopiedWithoutTheRings) {
  constexpr size_t kHalf = size_t{256} << 10, kAll = 2 * kHalf, kPieces = kHalf / (64 << 10);
  const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
  backend->Enter();
  void* const memory =
      ::mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const host = static_cast<std::byte*>(memory);
  std::vector<std::byte> there(kAll);
  for (size_t i = 0; i < kAll; ++i) there[i] = static_cast<std::byte>(i * 7 % 251);
  const std::unique_ptr<DeviceBuffer> buffer = backend->Allocate(kAll);
  auto* const device = static_cast<std::byte*>(buffer->data());
  const DrainAtExit drain{*backend};
  backend->CopyIn(device, there.data(), kAll);
  backend->Drain();
  // The number of CUDA's copies for this part of the memory.
  const auto copies_of = [&](size_t first, size_t bytes) {
    std::memset(host, 0, kAll);
    const int before = software_gpu::Calls("cudaMemcpyAsync");
    backend->CopyOut(host + first, device + first, bytes);
    backend->Drain();
    EXPECT_EQ(std::memcmp(host + first, there.data() + first, bytes), 0);
    return static_cast<size_t>(software_gpu::Calls("cudaMemcpyAsync") - before);
  };
  auto locked = backend->Register({"a test", host, kHalf, false});
  ASSERT_NE(locked, nullptr);
  EXPECT_EQ(copies_of(0, kHalf), 1u);
  EXPECT_EQ(copies_of(kHalf / 2, kHalf / 2), 1u);
  EXPECT_EQ(copies_of(kHalf, kHalf), kPieces);
  EXPECT_EQ(copies_of(kHalf / 2, kHalf), kPieces);
  locked.reset();
  EXPECT_EQ(copies_of(0, kHalf), kPieces);
  ::munmap(memory, kAll);
}

}  // namespace
}  // namespace muster
