#include "bench/team.h"

#include <algorithm>
#include <atomic>

#include "common/base/denormals.h"
#include "ps/update/thread_pool.h"

namespace muster::bench {

Team::Team(int threads)
    : threads_(threads), start_(threads + 1), stop_(threads + 1), times_(threads) {
  FlushDenormals();
  if (threads == 1) return;
  for (int thread = 0; thread < threads; ++thread) {
    members_.emplace_back([this, thread] {
      FlushDenormals();
      for (;;) {
        start_.arrive_and_wait();
        if (job_ == nullptr) return;
        RunJob(thread);
        stop_.arrive_and_wait();
      }
    });
  }
}

Team::~Team() {
  job_ = nullptr;
  if (!members_.empty()) start_.arrive_and_wait();
}

void Team::RunJob(int thread) {
  Times& times = times_[static_cast<size_t>(thread)];
  times.began = Clock::now();
  (*job_)(thread);
  times.ended = Clock::now();
}

double Team::Time(const std::function<void(int thread)>& job) {
  job_ = &job;
  if (threads_ == 1) {
    RunJob(0);
  } else {
    start_.arrive_and_wait();
    stop_.arrive_and_wait();
  }
  const auto began = std::ranges::min(times_, {}, &Times::began).began;
  const auto ended = std::ranges::max(times_, {}, &Times::ended).ended;
  return std::chrono::duration<double>(ended - began).count();
}

double Team::TimeEach(size_t count, int repeats, const std::function<void(int, size_t)>& job) {
  if (repeats == 1) {
    std::atomic<size_t> next = 0;
    return Time([&](int) {
      for (size_t i; (i = next.fetch_add(1)) < count;) job(0, i);
    });
  }
  const double all = Time([&](int thread) {
    const auto t = static_cast<size_t>(thread), threads = static_cast<size_t>(threads_);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (size_t i = count * t / threads; i < count * (t + 1) / threads; ++i) job(repeat, i);
    }
  });
  return all / repeats;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace muster::bench
