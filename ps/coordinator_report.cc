// What the coordinator tells the world: metrics, TensorBoard, the status file, lines for people.
#include <fmt/core.h>

#include "ps/coordinator.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};

}  // namespace

void Coordinator::OnStepTimes(uint32_t rank, const wire::StepTimes& times) {
  progress_.AddTimes(rank, times);
  board_.AddTimes(rank, times);
  watch_.AddTimes(rank, times);
  shares_.AddTimes(rank, times, work_.assignment());
}

void Coordinator::ReportStep(int64_t steps_done) {
  if (const auto seen = aggregator_.TakeObservation()) board_.Observed(steps_done, *seen);
  if (steps_done % config_.run().log_every_steps() == 0 || steps_done == plan_.total_steps) {
    const auto line = progress_.LogLine();
    reporter_.Metrics(line);
    reporter_.Log(line);
    board_.Log(line);
    watch_.Log(line);
    while (const auto trouble = board_.TakeTrouble()) reporter_.Warning(*trouble);
  }
  if (LiveLineIsDue()) reporter_.Progress(progress_.LiveLine());
}

bool Coordinator::LiveLineIsDue() {
  if (Clock::now() < next_live_) return false;
  next_live_ = Clock::now() + kLiveInterval;
  return true;
}

// For people who look in, while it lasts.
void Coordinator::Look(Clock::time_point now) {
  RunWatch::Moment moment{.state = phase_ == Phase::kGathering   ? "gathering"
                                   : phase_ == Phase::kPreparing ? "preparing"
                                                                 : "training"};
  const bool evaluates = evaluator_.running() &&
                         (phase_ == Phase::kFinishing || evaluator_.current().version() == step_);
  if (evaluates) {
    moment.state = "evaluating";
    moment.evaluating.emplace();
    moment.evaluating->set_done(evaluator_.current().done());
    moment.evaluating->set_total(evaluator_.current().blocks());
  } else if (phase_ == Phase::kTraining) {
    moment.waited = deadlines_.waited_since_restart(now);
    moment.usual = progress_.MedianStep().value_or(0);
    moment.waits = [&] { return StallText(now); };
  }
  if (phase_ != Phase::kGathering) moment.checkpoint = checkpoints_.Status(plan_, step_);
  watch_.Look(moment, now);
}

std::string Coordinator::StallText(Clock::time_point now) const {
  std::string what;
  const std::vector<uint32_t> late = LateRanks(what);
  const std::string missing = WhatIsMissing();
  const double waited = deadlines_.waited_since_restart(now);
  if (Starves()) {
    return fmt::format("step {} has waited {:.0f} s for more workers (cluster.min_workers)", step_,
                       waited);
  }
  const std::string from = late.empty() ? "" : " from " + members_.Names(late);
  return fmt::format("step {} has waited {:.0f} s: {}{}{}; after {:g} s the run ends", step_,
                     waited, what, from, missing.empty() ? "" : "; missing: " + missing,
                     deadlines_.StepLimit(progress_.MedianStep()));
}

void Coordinator::End(const events::Summary& summary) {
  board_.End(summary);
  while (const auto trouble = board_.TakeTrouble()) reporter_.Warning(*trouble);
  watch_.End(summary);
}

}  // namespace muster
