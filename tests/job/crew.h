// Jobs of workers in threads of a test, which fail, wait and come where it says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/job/hardy_worker.h"

namespace muster::testing {

inline constexpr int64_t kCrewSteps = 6;
inline constexpr int64_t kCrewTestSamples = 64;
inline constexpr int64_t kFaultStep = 2;

// So many steps, evaluated every second one. `settings`: more of the config, in its text format.
// Lost workers do not end the job.
config::Config CrewConfig(const std::string& settings, uint32_t workers, uint32_t slices = 4);

// Workers in threads of this test.
class Crew {
 public:
  explicit Crew(const TestJob& job) : job_(job) {}
  ~Crew();  // waits for them
  void Add(
      std::optional<uint32_t> rank, HardyWorker::At at = [](Point, int64_t, Client&) {});
  int completed() const { return completed_; }
  std::string errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }

 private:
  const TestJob& job_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::atomic<int> completed_ = 0;
  std::string errors_;
};

// Something that some thread waits for, to which others come.
class Milestone {
 public:
  explicit Milestone(int count = 1) : left_(count) {}
  void Reach() {
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  // 30 s at most; then the test fails.
  void Await();
  bool reached() {
    const std::lock_guard lock(mutex_);
    return left_ <= 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
};

// A worker that dies once, there.
HardyWorker::At DiesAt(Point point, int64_t step = kFaultStep);

// The weights' hash of the same run with workers that nothing disturbs.
uint64_t Undisturbed(const config::Config& config);

}  // namespace muster::testing
