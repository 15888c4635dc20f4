// Monitors a run: warns about slow ranks and about stalls before a deadline ends the run, and
// collects the run's status.
//
// Owner: the run keeper. Used on the loop thread.
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

  // All must outlive this object.
  RunWatch(const Roster& roster, const Progress& progress, Recorder& recorder);

  // Sets the ranks' shares of a batch from now on.
  void Begin(const StepPlan& plan, const Assignment& assignment);
  // Called when the rank is lost or was reset.
  void Lost(uint32_t rank) { recent_.Forget(rank); }
  void AddTimes(uint32_t rank, const wire::StepTimes& times) { recent_.Add(rank, times); }

  // The current activity. `waits` describes what the run waits for; it is called only for a
  // warning. `waited` and `usual`: the current and the usual duration of this wait, in seconds.
  struct Moment {
    const char* state;
    double waited = 0, usual = 0;
    std::function<std::string()> waits;
    std::optional<events::Progress::Evaluating> evaluating;
    std::optional<events::Status::Checkpoint> checkpoint;
  };
  // True soon after the start, and then a few times per second.
  bool IsDue(Clock::time_point now) const { return now >= next_look_; }
  void Look(const Moment& moment, Clock::time_point now);
  events::Status Status(const char* state) const;

 private:
  void LookForStragglers(Clock::time_point now);
  void LookForStall(const Moment& moment);
  void Went();  // called when the wait is over

  const Roster& roster_;
  const Progress& progress_;
  Recorder& recorder_;
  RecentTimes recent_;
  std::vector<int64_t> slices_;  // by rank
  std::vector<double> samples_;  // samples of a batch, by rank
  StragglerWatch stragglers_;
  StallWatch stall_;
  double stalled_ = 0;  // how long the wait had lasted at the last look, in seconds
  std::optional<events::Status::Checkpoint> checkpoint_;
  std::string waits_;
  Clock::time_point next_look_, next_status_;
};

}  // namespace muster
