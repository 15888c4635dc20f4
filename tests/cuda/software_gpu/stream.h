// Streams: each is a thread that does its work in order, with delays. Only events and the host
// order the work of different streams.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/software_gpu/clock.h"

namespace muster::software_gpu {

class Device;
class Stream;

// A piece of work, as its stream's thread sees it.
struct Work {
  Stream& stream;
  const char* name;
  // Null if it is not a kernel.
  const void* kernel = nullptr;
  // The finished work of other streams, and this work's number in its own.
  const Clock& clock;
  int slot;
  uint64_t segment;
};

// A position in a stream, reached a single time.
class Mark {
 public:
  void Reach(const Clock& clock);
  bool Wait(double seconds);
  bool IsReached() { return Wait(0); }
  // Like IsReached, for callers that poll: from the second call on, blocks briefly before it
  // returns false.
  bool Poll();
  // The work that is done when the mark is reached.
  const Clock& clock() const { return clock_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool was_polled_ = false;
  Clock clock_ = {};
};

class Stream {
 public:
  struct Item {
    Clock known = {};
    const char* name = nullptr;
    const void* kernel = nullptr;
    std::function<void(const Work&)> work;
    std::shared_ptr<Mark> reach;
    std::shared_ptr<Mark> wait;
  };

  // `first_segment`: the last segment of the slot's previous stream.
  Stream(Device& device, int slot, uint64_t first_segment, uint64_t seed, int delay_us);
  // Finishes the queued work.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int slot() const { return slot_; }
  uint64_t segment() const { return segment_; }

  // Queues work. `known`: the work that the host knows to be done.
  void Push(const Clock& known, const char* name, const void* kernel,
            std::function<void(const Work&)> work);
  std::shared_ptr<Mark> PushMark(const Clock& known);
  // Delays later work until the mark is reached.
  void PushWait(const Clock& known, std::shared_ptr<Mark> mark);
  // Between these calls, work is not queued but returned by the second one.
  void BeginCapture();
  std::vector<Item> EndCapture();
  bool IsCapturing();
  // Whether all queued work is done.
  bool IsIdle();

  // For the work itself: returns the next number, for a part of a kernel.
  uint64_t NextSegment() { return ++segment_; }
  // For kernels: makes device memory accessible until the stream runs something other than a
  // kernel.
  void OpenMemory();
  // Describes the work with this number, as in "kernel Sum at …". Exact only while no later work of
  // this stream can start, or for messages.
  std::string DescribeSegment(uint64_t segment);

 private:
  struct Past {
    uint64_t first_segment;
    const char* name;
    const void* kernel;
  };

  void Push(Item item);
  bool IsIdleNow() const { return items_.empty() && !busy_; }
  void Loop(std::stop_token stop);
  void Do(Item& item);
  void Reach(Mark& mark);
  void Delay();
  void CloseMemory();

  Device& device_;
  const int slot_;
  const int delay_us_;
  uint64_t random_;
  bool memory_is_open_ = false;
  // Used by the thread while it is busy, otherwise guarded by the mutex.
  Clock clock_ = {};
  uint64_t segment_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::optional<std::vector<Item>> captured_;
  bool busy_ = false;
  std::deque<Past> past_;
  std::jthread thread_;
};

}  // namespace muster::software_gpu
