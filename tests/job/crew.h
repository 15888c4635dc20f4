// Jobs with workers in threads of a test, which fail, wait and join where the test says.
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

// A config with this many steps, evaluated every second step. `settings`: more of the config, in
// text format. Lost workers do not end the job.
config::Config CrewConfig(const std::string& settings, uint32_t workers, uint32_t slices = 4);

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

// A point in time that threads wait for and others reach.
class Milestone {
 public:
  explicit Milestone(int count = 1) : left_(count) {}
  void Reach() {
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  // Waits for at most 30 s, then fails the test.
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

// Makes a worker die there, a single time.
HardyWorker::At DiesAt(Point point, int64_t step = kFaultStep);

// The weights' hash of the same run with undisturbed workers.
uint64_t Undisturbed(const config::Config& config);

}  // namespace muster::testing
