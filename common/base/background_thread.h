// A thread for work that no other thread waits for, such as writing files during training.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace muster {

// Runs jobs in the order of Submit. The destructor runs all remaining jobs.
class BackgroundThread {
 public:
  BackgroundThread() = default;
  BackgroundThread(const BackgroundThread&) = delete;

  // Call from one thread. `job` must not throw. Never blocks, so callers with large jobs must limit
  // how many wait. The thread starts with the first job; if it cannot start, the caller runs jobs.
  void Submit(std::function<void()> job);

 private:
  bool Begin();
  void Work(std::stop_token stop);

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> jobs_;
  std::jthread thread_;  // last: joined first
};

}  // namespace muster
