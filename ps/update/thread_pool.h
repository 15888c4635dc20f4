// A few threads that do arithmetic on spans. They own no memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "common/base/fd.h"

namespace muster {

// Jobs start in the order of Submit. The owner thread collects finished jobs: it checks
// HasFinished(), or polls fd() after PrepareToSleep().
class ThreadPool {
 public:
  explicit ThreadPool(size_t threads);
  // The destructor finishes running jobs and drops waiting ones.
  ThreadPool(const ThreadPool&) = delete;

  // `job` must not throw. It may return a function that Collect runs on the owner thread.
  using Completion = std::function<void()>;
  void Submit(std::function<Completion()> job);
  // Queues a completion from a thread outside the pool, as if a job had returned it.
  void Post(Completion completion);

  size_t threads() const { return workers_.size(); }
  bool HasFinished() const { return finished_.load(std::memory_order_acquire); }
  // From now until Collect, a finished job makes fd() readable. Returns false if one has already
  // finished.
  bool PrepareToSleep();
  int fd() const { return bell_.get(); }
  // Runs the completions of finished jobs on the calling thread.
  void Collect();

 private:
  void Work(std::stop_token stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<Completion()>> jobs_;
  std::vector<Completion> done_;
  std::atomic<bool> finished_{false};  // done_ is not empty; changed under mutex_
  bool owner_sleeps_ = false;          // the next finished job must ring bell_
  bool rung_ = false;                  // bell_ has been rung
  const EventFd bell_;
  std::vector<std::jthread> workers_;  // last: joined first
};

}  // namespace muster
