// The slow rank: the one that the others wait for, and since when.
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

  // A rank is a straggler while its compute and input of the last kSteps (UsualBusy) take kSlow
  // times what they take the other ranks, their median, and kLeastMs longer; until they are below
  // kFine times.
  static constexpr size_t kSteps = 15;
  static constexpr double kSlow = 1.5, kFine = 1.25, kLeastMs = 10;
  // It is said of the same rank no more often than this.
  static constexpr std::chrono::seconds kQuiet{60};

  // The slowest rank, whether it is much slower or not.
  struct Slowest {
    uint32_t rank = 0;
    int64_t since_step = 0;  // it has been the slowest one since
    Time since;
    double busy_ms = 0, others_ms = 0;  // in a step
    bool straggles = false;
  };
  // What is worth a line.
  struct Change {
    Slowest who;
    bool over = false;  // it is as fast as the others again
  };

  // Looks at the last steps, `step` of which are done. With one rank, or before each has reported
  // kSteps, there is nobody.
  std::optional<Change> Look(const RecentTimes& recent, int64_t step, Time now);
  const std::optional<Slowest>& slowest() const { return slowest_; }

 private:
  std::optional<Change> Begin(Time now);

  std::optional<Slowest> slowest_;
  std::vector<std::optional<Time>> said_;  // of each rank, when it was said to be slow
  bool announced_ = false;                 // of this slowest one
};

}  // namespace muster
