// Detects a slow rank that the others wait for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "ps/record/recent_times.h"

namespace muster {

class StragglerWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A rank is a straggler if its compute and input time (UsualBusy of the last kSteps steps)
  // exceeds kSlow times the median of the other ranks and is kLeastMs longer, until it is below
  // kFine times the median.
  static constexpr size_t kSteps = 15;
  static constexpr double kSlow = 1.5, kFine = 1.25, kLeastMs = 10;
  // Minimum interval between warnings about the same rank.
  static constexpr std::chrono::seconds kQuiet{60};

  // The slowest rank, whether it is a straggler or not.
  struct Slowest {
    uint32_t rank = 0;
    int64_t since_step = 0;  // when it became the slowest
    Time since;
    double busy_ms = 0, others_ms = 0;  // per step
    bool straggles = false;
  };
  // A change to report.
  struct Change {
    Slowest who;
    bool over = false;  // it is no longer slow
  };

  // Checks the last steps. `step`: number of finished steps. Finds nothing if there is only one
  // rank, or before each rank has reported kSteps steps.
  std::optional<Change> Look(const RecentTimes& recent, int64_t step, Time now);
  const std::optional<Slowest>& slowest() const { return slowest_; }

 private:
  std::optional<Change> Begin(Time now);

  std::optional<Slowest> slowest_;
  std::vector<std::optional<Time>> said_;  // time of the last warning, by rank
  bool announced_ = false;                 // a warning about slowest_ was given
};

}  // namespace muster
