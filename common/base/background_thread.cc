#include "common/base/background_thread.h"

#include <system_error>
#include <utility>

namespace muster {

bool BackgroundThread::Begin() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::jthread([this](std::stop_token stop) { Work(stop); });
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

void BackgroundThread::Submit(std::function<void()> job) {
  if (!Begin()) return job();
  bool sleeps = false;
  {
    const std::scoped_lock lock(mutex_);
    sleeps = jobs_.empty();  // the thread sleeps, or is about to check for jobs
    jobs_.push_back(std::move(job));
  }
  if (sleeps) wake_.notify_one();
}

void BackgroundThread::Work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, stop, [this] { return !jobs_.empty(); });
    if (jobs_.empty()) return;  // stop requested
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace muster
