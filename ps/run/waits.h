// The deadline of each phase, and which workers missed it.
//
// Pure logic: no link, no clock. Owner: the run.
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

  // All must outlive this object.
  Waits(RunParts& parts, const Dispatcher& dispatcher, Time now);

  // Called when a wait begins: for the workers' readiness, a step, or the step after an evaluation.
  void Restart(Time now) { deadlines_.Restart(now); }
  Time since() const { return deadlines_.since(); }
  double seconds(Time now) const { return deadlines_.waited_since_restart(now); }
  // Called after the server was suspended. Extends all deadlines by this time.
  void Extend(std::chrono::steady_clock::duration suspension);

  // The result of a check: the run has failed, or workers are lost.
  struct Verdict {
    std::optional<JobFailure> failure;
    std::vector<std::pair<uint32_t, std::string>> lost;  // rank, why
  };
  Verdict Check(Time now);
  // Fails if expected workers did not join within deadlines.start_s.
  std::optional<JobFailure> CheckStart(Time now);
  // Describes what the current step waits for.
  std::string StallText(Time now) const;

 private:
  // Whether there are too few workers for the current step, or none is active.
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
