// A thread for what nobody waits for: writing files beside the training.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace muster {

// Jobs run one after the other, in the order of Submit. The destructor runs what is still there.
class BackgroundThread {
 public:
  // `most_waiting`: jobs; what a slow disk holds up is bounded by it.
  explicit BackgroundThread(size_t most_waiting);
  BackgroundThread(const BackgroundThread&) = delete;

  // `job` must not throw. False: too many wait, and it will not run. Never blocks.
  bool Submit(std::function<void()> job);

 private:
  void Work(std::stop_token stop);

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::function<void()>> jobs_;
  std::jthread thread_;  // last: joined first
};

}  // namespace muster
