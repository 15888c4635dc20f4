// The state machine of a run: its phases and, in training, its steps (docs/DESIGN.md, "One step").
// The dispatcher assigns the work; Waits has the deadlines.
//
// Handlers return why a message is invalid, or "". Failures of the job are recorded in
// FirstFailure; environment errors (a full disk) are thrown as Error. Uses no link and no clock:
// `now` is passed in, and outgoing messages queue in Membership.
//
// Owner: the server. Used on the loop thread.
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

  // All except `resume` must outlive this object. `resume`: where the run resumes, or null.
  // `config` is resolved (slices and threads are set). Throws Error(kData) if the checkpoint cannot
  // be read.
  Run(const config::Config& config, const Graph& graph, Membership& members, Recorder& recorder,
      FirstFailure& failure, Time now, const ResumePoint* resume = nullptr);

  const RunParts& parts() const { return parts_; }
  Engine& engine() { return parts_.engine; }
  RunKeeper& keeper() { return parts_.keeper; }
  SharedValues& values() { return parts_.values; }
  const Dispatcher& dispatcher() const { return dispatcher_; }
  const Resumption& resumption() const { return resumption_; }

  // If all initial workers have joined, plans the run, welcomes the workers, and sends W(step).
  void BeginIfComplete(Time now);
  // Called when a worker has joined but the start does not wait for it, has joined late, or has
  // reconnected.
  void OnJoined(uint32_t rank, Time now);
  // Returns why the worker is rejected, or "".
  std::string OnReady(uint32_t rank, const wire::Ready& ready, Time now);
  // Called when a member was lost. `code`: the exit code if the run cannot continue without it.
  void OnLost(uint32_t rank, ExitCode code, const std::string& why, Time now);
  void OnLeave(uint32_t rank, Time now);
  void OnLeft(uint32_t rank, Time now);

  std::string OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss, Time now);
  std::string OnGradient(uint32_t rank, const wire::GradientPart& part, const Payload& payload,
                         Time now);
  std::string OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block, Time now);
  // After the end, too.
  std::string OnTell(uint32_t rank, const wire::Tell& tell, Time now);
  void OnUpdaterTell(const wire::Tell& tell);
  std::string OnStepTimes(uint32_t rank, const wire::StepTimes& times);

  // Publishes finished chunks, assigns unassigned work, and ends the step if it is complete.
  void Advance(bool collect, Time now);
  // Handles timeouts: slow and lost workers, deadlines, and the status shown to users.
  void CheckTime(Time now);
  // The time at which workers that have not finished the current step count as slow, if before
  // `end`.
  std::optional<Time> LateBefore(Time end) const;
  // Called after the server was suspended. Extends all deadlines by this time.
  void Extend(std::chrono::steady_clock::duration suspension);

  // Whether the run is over and its last checkpoint was saved or has failed.
  bool done() const;
  events::Summary End(events::Summary::End end);

 private:
  bool GiveUpMissing();
  void AdmitIfNobodyIsLeft(Time now);
  void StartIfReady(Time now);
  void Start(Time now);
  bool MayProceed() const;
  void Proceed(Time now);
  void OrderNext(Time now);
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
  double learning_rate_ = 0, loss_scale_ = 1;  // of the current step
  bool next_is_due_ = false;  // the next step will be ordered when its loss scale is known
  Time checked_at_;           // the last CheckTime
};

}  // namespace muster
