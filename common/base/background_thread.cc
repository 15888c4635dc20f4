#include "common/base/background_thread.h"

#include <utility>

namespace muster {

BackgroundThread::BackgroundThread() : thread_([this](std::stop_token stop) { Work(stop); }) {}

void BackgroundThread::Submit(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
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
