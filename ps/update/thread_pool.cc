#include "ps/update/thread_pool.h"

#include <string>
#include <utility>

#include "common/base/denormals.h"
#include "common/trace/trace.h"

namespace muster {

ThreadPool::ThreadPool(size_t threads) {
  for (size_t i = 0; i < threads; ++i) {
    workers_.emplace_back([this, i](std::stop_token stop) {
      trace::NameThread("pool " + std::to_string(i));
      Work(stop);
    });
  }
}

void ThreadPool::Submit(std::function<Completion()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

bool ThreadPool::PrepareToSleep() {
  const std::lock_guard lock(mutex_);
  owner_sleeps_ = done_.empty();
  return owner_sleeps_;
}

void ThreadPool::Collect() {
  if (!HasFinished()) return;
  std::vector<Completion> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
    finished_ = false;
    if (std::exchange(rung_, false)) bell_.Clear();
  }
  for (const Completion& completion : done) completion();
}

void ThreadPool::Work(std::stop_token stop) {
  FlushDenormals();
  for (;;) {
    std::function<Completion()> job;
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [this] { return !jobs_.empty(); }) || stop.stop_requested()) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    Post(job());
  }
}

void ThreadPool::Post(Completion completion) {
  const std::lock_guard lock(mutex_);
  done_.push_back(std::move(completion));
  finished_ = true;
  if (!std::exchange(owner_sleeps_, false)) return;
  rung_ = true;
  bell_.Ring();
}

}  // namespace muster
