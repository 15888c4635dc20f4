// Runs the blocks of a kernel one after another in a shuffled order, and the threads of each block
// in a shuffled order. A thread runs until it waits at a barrier or for its warp. Only then does it
// need a stack of its own (a fiber).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/base/fiber.h"
#include "tests/cuda/software_gpu/access.h"
#include "tests/cuda/software_gpu/device_memory.h"
#include "tests/cuda/software_gpu/kernel.h"
#include "tests/cuda/software_gpu/shared_memory.h"
#include "tests/cuda/software_gpu/stream.h"

namespace muster::software_gpu {

inline constexpr uint32_t kWarp = 32;

struct Lane {
  enum State { kRunning, kAtBarrier, kInWarp, kReturned };
  uint32_t number = 0;  // within the block
  State state = kRunning;
  testing::Fiber* fiber = nullptr;
  Where where = {};
  // Valid in state kInWarp.
  uint32_t bits = 0;
  size_t bytes = 0;
  alignas(8) unsigned char value[8] = {};
  alignas(8) unsigned char result[8] = {};
};

// Owned and used by the thread of a stream.
class BlockRunner {
 public:
  BlockRunner(const DeviceMemory& memory, uint64_t seed) : memory_(memory), random_(seed) {}
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // The runner whose kernel this thread executes, or null.
  static BlockRunner* Current() { return of_thread_; }

  void Run(const Kernel& kernel, const Work& work);

  // The following calls are for the block's current thread.
  const Kernel& kernel() const { return *kernel_; }
  const Work& work() const { return *work_; }
  uint3 block_index() const { return block_index_; }
  const Lane& lane() const { return *current_; }
  // Call before the thread reads or writes.
  void Touch(const void* address, size_t bytes, AccessKind kind, const void* code);
  void SyncThreads(Where where);
  void ShuffleXor(uint32_t mask, void* value, size_t bytes, uint32_t bits, Where where);
  // Reports a violation of this thread and ends the kernel. Functions called by the kernel return
  // and then call Leave(), so that no objects are left on the thread's stack.
  void Abandon(const std::string& what);
  // Does not return if the kernel must end.
  void Leave() {
    while (abandoned_) Wait();
  }
  // "thread 3 of block (0, 0, 0) of kernel …".
  std::string DescribeThread() const;

 private:
  bool RunBlock();
  void Become(Lane* lane);
  void Body(testing::Fiber& fiber);
  Lane* TakeAny(std::vector<Lane*>& lanes);
  testing::Fiber* IdleFiber();
  testing::Fiber* Next();
  void GoOnFrom(testing::Fiber& fiber);
  void Wait();
  void Release(Lane& lane);
  void CompleteWarp(std::span<Lane> lanes);
  void ReportStuck();
  uint32_t Random(size_t below);
  void TouchDevice(const void* address, size_t bytes, AccessKind kind, const void* code);
  bool TouchPage(size_t offset, size_t bytes, AccessKind kind, const void* code);
  void TouchShared(const SharedMemory::Place& place, size_t bytes, AccessKind kind,
                   const void* code);

  static thread_local constinit BlockRunner* of_thread_;

  const DeviceMemory& memory_;
  uint64_t random_;
  const Kernel* kernel_ = nullptr;
  const Work* work_ = nullptr;
  uint3 block_index_ = {};
  std::vector<Lane> lanes_;
  Lane* current_ = nullptr;
  std::vector<uint32_t> in_warp_;  // the number of waiting lanes of each warp
  std::vector<Lane*> starting_;    // not started
  std::vector<Lane*> ready_;       // can resume
  size_t at_barrier_ = 0;
  size_t returned_ = 0;
  bool abandoned_ = false;
  testing::OutsideFibers outside_;
  std::vector<std::unique_ptr<testing::Fiber>> fibers_;
  std::vector<testing::Fiber*> idle_;
  Accessor who_ = {};  // the block's current thread
  SharedMemory shared_;
};

}  // namespace muster::software_gpu
