// Streams: each a thread that does what it was given in that order, and takes its time. Nothing
// else orders their work but events and the host.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/cuda/software_gpu/clock.h"

namespace muster::software_gpu {

class Device;
class Stream;

// One piece of work, as its stream's thread does it.
struct Work {
  Stream& stream;
  const char* name;
  // The kernel, if it is one.
  const void* kernel = nullptr;
  // The finished work of other streams, and this work's number in its own.
  const Clock& clock;
  int slot;
  uint64_t segment;
};

// A place in a stream, reached once.
class Mark {
 public:
  void Reach(const Clock& clock);
  bool Wait(double seconds);
  bool IsReached() { return Wait(0); }
  // IsReached, of somebody who may ask again and again: from the second time on it takes a moment
  // to say no.
  bool Poll();
  // What is done when it is reached.
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
  // `first_segment`: what the slot's last stream came to.
  Stream(Device& device, int slot, uint64_t first_segment, uint64_t seed, int delay_us);
  // Does what is queued, and ends.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int slot() const { return slot_; }
  uint64_t segment() const { return segment_; }

  // Queues work. `known`: what the host knows to be done.
  void Push(const Clock& known, const char* name, const void* kernel,
            std::function<void(const Work&)> work);
  std::shared_ptr<Mark> PushMark(const Clock& known);
  // What follows begins when the mark is reached.
  void PushWait(const Clock& known, std::shared_ptr<Mark> mark);
  // Whether all that was queued is done.
  bool IsIdle();

  // For the work itself: the next number, for a part of a kernel.
  uint64_t NextSegment() { return ++segment_; }
  // For a kernel: the device's memory can be touched, until what comes next on this stream is no
  // kernel.
  void OpenMemory();
  // "kernel Sum at …": the work that had this number. Only while no later work of this stream can
  // begin, or for messages.
  std::string DescribeSegment(uint64_t segment);

 private:
  struct Item {
    Clock known = {};
    const char* name = nullptr;
    const void* kernel = nullptr;
    std::function<void(const Work&)> work;
    std::shared_ptr<Mark> reach;
    std::shared_ptr<Mark> wait;
  };
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
  // The thread's while it is busy, else whoever's has the mutex.
  Clock clock_ = {};
  uint64_t segment_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;
  std::deque<Past> past_;
  std::jthread thread_;
};

}  // namespace muster::software_gpu
