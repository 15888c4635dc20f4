// Nobody waits for ever: the deadline of each phase, and who has missed it.
//
// A decider: no link, no clock. Owner: the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "ps/run/deadlines.h"
#include "ps/run/dispatcher.h"
#include "ps/run/run_parts.h"

namespace muster {

class Waits {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // All outlive this.
  Waits(RunParts& parts, const Dispatcher& dispatcher, Time now);

  // Something new is waited for: the workers' readiness, a step, the step after an evaluation.
  void Restart(Time now) { deadlines_.Restart(now); }
  Time since() const { return deadlines_.since(); }
  double seconds(Time now) const { return deadlines_.waited_since_restart(now); }
  // The server was suspended: all waits count from so much later on.
  void Extend(std::chrono::steady_clock::duration suspension);

  // What follows from the time: the run has failed, or workers are lost.
  struct Verdict {
    std::optional<JobFailure> failure;
    std::vector<std::pair<uint32_t, std::string>> lost;  // rank, why
  };
  Verdict Check(Time now);
  // A deadline of the start has passed: expected workers have not joined.
  std::optional<JobFailure> CheckStart(Time now);
  // What the step under way waits for, in words.
  std::string StallText(Time now) const;

 private:
  // Too few workers are there for the step under way, or none that is active.
  bool Starves() const;
  Verdict CheckEvaluation(Time now) const;
  std::optional<JobFailure> CheckStarved(Time now);
  void CheckUnready(Time now, Verdict& verdict) const;
  Verdict Blame(const std::vector<uint32_t>& ranks, const std::string& what, double limit,
                const std::string& missing = "") const;
  std::vector<uint32_t> OwingRanks(std::string& what) const;
  std::string WhatIsMissing() const;
  void TellWaiting(const std::vector<uint32_t>& missing, double seconds, Time now);

  RunParts& parts_;
  const Dispatcher& dispatcher_;
  const bool recovers_;
  Deadlines deadlines_;
  std::optional<Time> starved_since_;
  Time next_waiting_;
};

}  // namespace muster
