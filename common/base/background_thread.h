// A thread for what nobody waits for: writing files beside the training.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace muster {

// Jobs run one after the other, in the order of Submit. The destructor runs what is still there.
class BackgroundThread {
 public:
  BackgroundThread() = default;
  BackgroundThread(const BackgroundThread&) = delete;

  // Called by one thread. `job` must not throw. Never blocks: who submits large jobs bounds what
  // waits of them. The thread begins with the first job; where there can be none, jobs run here.
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
