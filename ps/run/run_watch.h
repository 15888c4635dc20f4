// Looks at a run as it goes: tells of a rank that is slow while it is, of what a stall waits for
// before a deadline ends it, and what the status file is to say.
//
// Owner: the run keeper. Used in the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/plan/assignment.h"
#include "common/plan/step_plan.h"
#include "ps/members/roster.h"
#include "ps/record/progress.h"
#include "ps/record/recent_times.h"
#include "ps/record/recorder.h"
#include "ps/record/stall_watch.h"
#include "ps/record/straggler.h"

namespace muster {

class RunWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // All outlive this.
  RunWatch(const Roster& roster, const Progress& progress, Recorder& recorder);

  // From now on the ranks compute a batch in these shares.
  void Begin(const StepPlan& plan, const Assignment& assignment);
  // The rank is gone, or begins anew.
  void Lost(uint32_t rank) { recent_.Forget(rank); }
  void AddTimes(uint32_t rank, const wire::StepTimes& times) { recent_.Add(rank, times); }

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
  RunStatus Status(const char* state) const;

 private:
  void LookForStragglers(Clock::time_point now);
  void LookForStall(const Moment& moment);
  void Went();  // what was waited for has come

  const Roster& roster_;
  const Progress& progress_;
  Recorder& recorder_;
  RecentTimes recent_;
  std::vector<int64_t> slices_;  // of each rank
  std::vector<double> samples_;  // of a batch, of each rank
  StragglerWatch stragglers_;
  StallWatch stall_;
  double stalled_ = 0;  // seconds, at the last look
  std::optional<RunStatus::Checkpoint> checkpoint_;
  std::string waits_;
  Clock::time_point next_look_, next_status_;
};

}  // namespace muster
