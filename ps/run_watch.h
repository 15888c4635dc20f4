// Looks at a run as it goes: tells of a rank that is slow while it is, of what a stall waits for
// before a deadline ends it, and writes the status file.
//
// Owner: the coordinator. Used in the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "common/plan/assignment.h"
#include "common/plan/step_plan.h"
#include "ps/membership.h"
#include "ps/progress.h"
#include "ps/reporter.h"
#include "ps/watch/recent_times.h"
#include "ps/watch/stall_watch.h"
#include "ps/watch/status_file.h"
#include "ps/watch/straggler.h"

namespace muster {

class RunWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // All outlive this. `run_dir` may be empty: no file.
  RunWatch(const std::string& run_dir, const Membership& members, const Progress& progress,
           Reporter& reporter, BackgroundThread& thread);

  // Who computes what of a batch, from now on.
  void Begin(const StepPlan& plan, const Assignment& assignment);
  // The rank is gone, or begins anew.
  void Lost(uint32_t rank) { recent_.Forget(rank); }
  void AddTimes(uint32_t rank, const wire::StepTimes& times) { recent_.Add(rank, times); }
  void Log(const events::Log& line);

  // What the run is at. `waits`: what it would wait for, asked only when it is worth a line;
  // `waited` and `usual`: seconds, so far and as a rule.
  struct Moment {
    const char* state;
    double waited = 0, usual = 0;
    std::function<std::string()> waits;
    std::optional<events::Progress::Evaluating> evaluating;
    std::optional<RunStatus::Checkpoint> checkpoint;
  };
  // Soon after it begins, and then a few times a second.
  bool IsDue(Clock::time_point now) const { return now >= next_look_; }
  void Look(const Moment& moment, Clock::time_point now);
  void End(const events::Summary& summary);

 private:
  void LookForStragglers(Clock::time_point now);
  void LookForStall(const Moment& moment);
  void Went();  // what was waited for has come
  RunStatus Status(const char* state, Clock::time_point now) const;
  void Tell(const std::string& line);

  const Membership& members_;
  const Progress& progress_;
  Reporter& reporter_;
  RecentTimes recent_;
  std::vector<int64_t> slices_;  // of each rank
  std::vector<double> samples_;  // of a batch, of each rank
  StragglerWatch stragglers_;
  StallWatch stall_;
  double stalled_ = 0;  // seconds, at the last look
  std::optional<RunStatus::Checkpoint> checkpoint_;
  std::string waits_;
  events::Measured measured_;
  double learning_rate_ = 0;
  StatusFile file_;
  Clock::time_point next_look_, next_status_;
};

}  // namespace muster
