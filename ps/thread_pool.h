// A few threads that do arithmetic on spans which they are handed. They own nothing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace muster {

// Jobs run in the order of Submit. Finished jobs are collected by the thread that owns the pool,
// which polls fd() for them.
class ThreadPool {
 public:
  explicit ThreadPool(size_t threads);
  // Finishes running jobs, forgets waiting ones.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  // `job` must not throw. It may return what is to be done by the owner afterwards, in Collect.
  using Completion = std::function<void()>;
  void Submit(std::function<Completion()> job);

  size_t threads() const { return workers_.size(); }
  // Readable while there are completions to collect.
  int fd() const { return event_fd_; }
  // Runs the completions of finished jobs in the calling thread.
  void Collect();

 private:
  void Work(std::stop_token stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<Completion()>> jobs_;
  std::vector<Completion> done_;
  int event_fd_;
  std::vector<std::jthread> workers_;  // last: joined first
};

// Sets flush-to-zero and denormals-are-zero in the calling thread. Every thread that does
// arithmetic on tensors calls it, so that bits do not depend on who computes them.
void FlushDenormals();

}  // namespace muster
