// A few threads that do arithmetic on spans which they are handed. They own nothing.
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

// Jobs run in the order of Submit. Finished jobs are collected by the thread that owns the pool,
// which looks at HasFinished(), or polls fd() after PrepareToSleep().
class ThreadPool {
 public:
  explicit ThreadPool(size_t threads);
  // Finishes running jobs, forgets waiting ones.
  ThreadPool(const ThreadPool&) = delete;

  // `job` must not throw. It may return what is to be done by the owner afterwards, in Collect.
  using Completion = std::function<void()>;
  void Submit(std::function<Completion()> job);
  // What another thread than the pool's wants to have done by the owner, as if a job had returned
  // it.
  void Post(Completion completion);

  size_t threads() const { return workers_.size(); }
  // Whether there are completions to collect.
  bool HasFinished() const { return finished_.load(std::memory_order_acquire); }
  // From now until Collect a job that finishes makes fd() readable. False: one has finished.
  bool PrepareToSleep();
  int fd() const { return bell_.get(); }
  // Runs the completions of finished jobs in the calling thread.
  void Collect();

 private:
  void Work(std::stop_token stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<Completion()>> jobs_;
  std::vector<Completion> done_;
  std::atomic<bool> finished_{false};  // done_ is not empty; changed under the mutex
  bool owner_sleeps_ = false;          // fd() is to become readable
  bool rung_ = false;                  // … and has
  const EventFd bell_;
  std::vector<std::jthread> workers_;  // last: joined first
};

// Sets flush-to-zero and denormals-are-zero in the calling thread. Every thread that does
// arithmetic on tensors calls it, so that bits do not depend on who computes them.
void FlushDenormals();

}  // namespace muster
