// Stores the events of trace.h in one buffer per thread until the session writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/trace/trace.h"

namespace muster::trace {

// Written by one thread at a time without a lock. Read only after that thread has ended, or by the
// thread itself.
struct ThreadBuffer {
  ThreadBuffer(std::string thread, size_t events) : name(std::move(thread)), events(events) {}

  const std::string name;
  std::vector<Event> events;  // touched at the start to avoid page faults during steps
  size_t size = 0;
  uint64_t dropped = 0;
  int64_t step = -1;
  bool in_use = true;  // guarded by the recorder's mutex
};

class Recorder {
 public:
  static Recorder& Get();  // never destroyed: threads may outlive main

  // Starts to record the steps [first, end) in new buffers of `capacity` events.
  void Start(int64_t first, int64_t end, size_t capacity);
  // Ends recording and returns the buffers.
  std::vector<std::shared_ptr<ThreadBuffer>> Stop();

  std::shared_ptr<ThreadBuffer> Acquire(const std::string& thread);
  void Release(const std::shared_ptr<ThreadBuffer>& buffer);
  bool Covers(int64_t step) const;

 private:
  mutable std::mutex mutex_;
  bool started_ = false;
  int64_t first_ = 0, end_ = 0;
  size_t capacity_ = 0;
  std::vector<std::shared_ptr<ThreadBuffer>> buffers_;
};

}  // namespace muster::trace
