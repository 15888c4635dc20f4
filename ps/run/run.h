// What happens next: the phases of a run and, in training, its steps (docs/DESIGN.md, "One step").
// The dispatcher gives out the work; Waits has the deadlines.
//
// Handlers return why a message does not fit, "" if it does. A failure of the job is set, not
// thrown; what the environment does (a full disk) is thrown as Error. No link and no clock: `now`
// is passed in, and messages wait in Membership.
//
// Owner: the server. Used in the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/graph/graph.h"
#include "common/link/link.h"
#include "proto/config.pb.h"
#include "ps/members/membership.h"
#include "ps/record/recorder.h"
#include "ps/run/dispatcher.h"
#include "ps/run/first_failure.h"
#include "ps/run/resumption.h"
#include "ps/run/run_parts.h"
#include "ps/run/waits.h"
#include "ps/update/schedule.h"

namespace muster {

class Run {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // All outlive this, but for `resume`: where the run resumes from, or null. `config` is resolved
  // (slices and threads are set). Throws Error(kData) if the checkpoint cannot be read.
  Run(const config::Config& config, const Graph& graph, Membership& members, Recorder& recorder,
      FirstFailure& failure, Time now, const ResumePoint* resume = nullptr);

  const RunParts& parts() const { return parts_; }
  RunParts& parts() { return parts_; }
  const Dispatcher& dispatcher() const { return dispatcher_; }
  const Resumption& resumption() const { return resumption_; }

  // If all have joined for whom the start waits: plans the run, welcomes them, sends W(step).
  void BeginIfComplete(Time now);
  // One has come late, or again over another link; or before the start, which does not wait for it.
  void OnJoined(uint32_t rank, Time now);
  // Why it cannot take part, or "".
  std::string OnReady(uint32_t rank, const wire::Ready& ready, Time now);
  // A member is gone: why, and with which code a run ends that cannot go on without it.
  void OnLost(uint32_t rank, ExitCode code, const std::string& why, Time now);
  // It wants to go; it has gone.
  void OnLeave(uint32_t rank, Time now);
  void OnLeft(uint32_t rank, Time now);

  std::string OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss, Time now);
  std::string OnGradient(uint32_t rank, const wire::GradientPart& part, const Payload& payload,
                         Time now);
  std::string OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block, Time now);
  void OnStepTimes(uint32_t rank, const wire::StepTimes& times);

  // Publishes what the pool has finished, gives out work that is unassigned, and ends the step if
  // it is complete.
  void Advance(bool collect, Time now);
  // What follows from the time: late and lost workers, deadlines, what a person sees.
  void CheckTime(Time now);
  // From when on workers are late that have not done their part of the step under way, if that is
  // before `end`.
  std::optional<Time> LateBefore(Time end) const;
  // The server was suspended: nothing that has passed since counts.
  void Extend(std::chrono::steady_clock::duration suspension);

  // The last checkpoint is on the disk, too, or cannot be.
  bool done() const;
  // The last word on the run.
  events::Summary End(events::Summary::End end);

 private:
  void AdmitIfNobodyIsLeft(Time now);
  void StartIfReady(Time now);
  void Start(Time now);
  bool MayProceed() const;
  void Proceed(Time now);
  void BeginStep(int64_t step, Time now);
  void EndStep(Time now);
  void EndEvaluation(Time now);
  void Finish(Time now);

  Membership& members_;
  FirstFailure& failure_;
  RunParts parts_;
  Dispatcher dispatcher_;
  Waits waits_;
  Resumption resumption_;
  LearningRateSchedule schedule_;
  double learning_rate_ = 0;
};

}  // namespace muster
