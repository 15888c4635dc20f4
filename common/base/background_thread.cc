#include "common/base/background_thread.h"

#include <utility>

namespace muster {

BackgroundThread::BackgroundThread(size_t most_waiting)
    : most_waiting_(most_waiting), thread_([this](std::stop_token stop) { Work(stop); }) {}

bool BackgroundThread::Submit(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    if (jobs_.size() >= most_waiting_) return false;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

void BackgroundThread::Work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, stop, [this] { return !jobs_.empty(); });
    if (jobs_.empty()) return;  // asked to stop
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace muster
