// A thread for work that no other thread waits for, such as writing files during training.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace muster {

// Runs jobs in the order in which they were submitted. The destructor runs all remaining jobs.
class BackgroundThread {
 public:
  BackgroundThread() = default;
  BackgroundThread(const BackgroundThread&) = delete;

  // Call from one thread. `job` must not throw. Never blocks, so callers with large jobs must limit
  // how many are pending. The thread starts with the first job. If it cannot be started, jobs run
  // in the calling thread.
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
