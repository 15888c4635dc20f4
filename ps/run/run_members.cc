// How a run starts, and how it handles members that join, leave or are lost.
#include <fmt/core.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/config/config_check.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "ps/run/find_poison.h"
#include "ps/run/run.h"
#include "ps/run/started_event.h"

namespace muster {

using Phase = RunPosition::Phase;

// ---------------------------------------------------------------------------------- the start

void Run::BeginIfComplete(Time now) {
  const Roster& roster = members_.roster();
  const bool is_complete = roster.MissingRanks().empty() && roster.IsEnough();
  if (parts_.state.phase != Phase::kGathering || !is_complete) return;
  parts_.state.plan = PlanSteps(parts_.config, roster.data().train_samples);
  parts_.work.evaluator.Plan(parts_.state.plan, roster.data().validation_samples,
                             roster.data().test_samples);
  if (const std::string why = resumption_.CheckPlan(); !why.empty()) {
    return failure_.Set({ExitCode::kUsage, std::nullopt, why});
  }
  CheckBatchNorms(parts_.graph, parts_.state.plan);
  schedule_ =
      LearningRateSchedule(parts_.config.learning_rate(), roster.workers(),
                           parts_.state.plan.At(parts_.state.plan.total_steps).samples_before);
  if (parts_.config.learning_rate().scaling() != config::LearningRate::NONE) {
    LogInfo("learning rate: base {:g} is scaled to {:g} ({}, {} workers)",
            parts_.config.learning_rate().base(), schedule_.base(),
            config::LearningRate::Scaling_Name(parts_.config.learning_rate().scaling()),
            roster.workers());
  }
  dispatcher_.Begin();
  members_.WelcomeAll({.plan = parts_.state.plan,
                       .assignment = parts_.work.shares.assignment(),
                       .chunks = parts_.engine.chunks(),
                       .wire_type = parts_.engine.variables.wire_type()});
  parts_.state.phase = Phase::kPreparing;
  parts_.feed.BeginStep(parts_.state.step);
  for (const uint32_t rank : roster.Seated()) parts_.feed.Activate(rank, std::nullopt);
  waits_.Restart(now);
  events::Event event;
  *event.mutable_started() = StartedEvent(parts_.state.plan, roster, parts_.graph, parts_.engine);
  parts_.keeper.recorder.Record(event);
  AdmitIfNobodyIsLeft(now);
}

// With CONTINUE, the workers that have joined may be enough.
bool Run::GiveUpMissing() {
  const Roster& roster = members_.roster();
  if (parts_.config.cluster().on_lost_worker() != config::Cluster::CONTINUE || !roster.IsEnough()) {
    return false;
  }
  const std::vector<uint32_t> missing = roster.MissingRanks();
  parts_.keeper.recorder.Warn(
      fmt::format("rank {} did not join within {:g} s (deadlines.start_s); starting without it "
                  "(cluster.on_lost_worker: CONTINUE)",
                  Join(missing, ", "), parts_.config.deadlines().start_s()));
  for (const uint32_t rank : missing) {
    members_.GiveUp(rank);
    parts_.keeper.watch.Lost(rank);
  }
  return true;
}

void Run::OnJoined(uint32_t rank, Time now) {
  if (members_.roster().at(rank).state == MemberState::kWaiting) {
    BeginIfComplete(now);  // there may be enough workers now
    return AdmitIfNobodyIsLeft(now);
  }
  members_.Welcome(rank);
  if (parts_.state.phase == Phase::kPreparing) parts_.feed.Activate(rank, std::nullopt);
}

// If all initial workers are gone, the start waits for the later ones after all.
void Run::AdmitIfNobodyIsLeft(Time now) {
  if (parts_.state.phase != Phase::kPreparing || !members_.roster().Seated().empty()) return;
  for (const uint32_t waiting : members_.AdmitWaiting(now)) OnJoined(waiting, now);
}

std::string Run::OnReady(uint32_t rank, const wire::Ready& ready, Time now) {
  if (ready.has_convolutions()) {
    const Roster& roster = members_.roster();
    const auto [refusal, warning] =
        parts_.convolutions.Take(roster.Name(rank), roster.at(rank).arithmetic,
                                 Printable(ready.convolutions(), kMostConvolutionsBytes));
    if (!refusal.empty()) return refusal;
    if (!warning.empty()) parts_.keeper.recorder.Warn(warning);
  }
  members_.OnReady(rank);
  parts_.work.poison.Forget(rank);
  StartIfReady(now);
  dispatcher_.MarkChanged();
  return "";
}

void Run::StartIfReady(Time now) {
  if (parts_.state.phase != Phase::kPreparing || !members_.Start()) return;
  parts_.state.phase = Phase::kTraining;
  const auto workers = static_cast<uint32_t>(members_.roster().Seated().size());
  LogInfo("all {} workers are ready: {} steps of {} samples", workers,
          parts_.state.plan.total_steps, parts_.state.plan.global_batch);
  parts_.keeper.progress.Begin(parts_.state.plan, members_.roster().workers(), members_.size());
  parts_.keeper.progress.SetWorkers(workers);
  parts_.keeper.watch.Begin(parts_.state.plan, parts_.work.shares.assignment());
  Start(now);
  for (const uint32_t rank : members_.AdmitWaiting(now)) OnJoined(rank, now);
}

// A resumed run first repeats an evaluation that had not ended.
void Run::Start(Time now) {
  const int64_t step = parts_.state.step;
  parts_.keeper.recorder.Begin(step);
  if (!resumption_.is_resumed()) {
    dispatcher_.Want(step, now);
    return BeginStep(step, now);
  }
  Evaluator& evaluator = parts_.work.evaluator;
  const bool over = resumption_.StopsEarly();
  const bool pending =
      !over && !resumption_.IsEvaluated() && step > 0 && evaluator.IsDueAfter(step - 1);
  LogInfo("resuming at step {}{}", step,
          pending ? ", starting with the evaluation of its weights" : "");
  if (over || (step == resumption_.LastStep() && !pending)) Finish(now);
  if (pending) {
    dispatcher_.OrderEvaluation(step, evaluator.chooses(), now);
    parts_.keeper.progress.BeginEvaluation();
  }
  if (evaluator.running() && parts_.config.evaluation().use_ema()) {
    for (size_t c = 0; c < parts_.engine.chunks().size(); ++c) parts_.feed.PublishAverage(step, c);
  }
  if (step == resumption_.LastStep())
    parts_.state.phase = std::max(parts_.state.phase, Phase::kFinishing);
  if (parts_.state.finishing()) return;
  if (!pending || !parts_.decisions.any()) dispatcher_.Want(step, now);
  BeginStep(step, now);
}

// ---------------------------------------------------------------------------------- members

void Run::OnLost(uint32_t rank, ExitCode code, const std::string& why, Time now) {
  const Roster& roster = members_.roster();
  const std::string text =
      fmt::format("{} was lost at step {}: {}", roster.Name(rank), parts_.state.step, why);
  parts_.values.Drop(rank, parts_.state.step, now);
  if (parts_.state.phase == Phase::kDone) return members_.Vacate(rank, text, now);
  if (parts_.config.cluster().on_lost_worker() == config::Cluster::ABORT) {
    return failure_.Set({code, rank, text});
  }
  if (parts_.state.has_begun()) {
    if (const std::string poison = FindPoison(parts_.work, parts_.state, roster, rank, now);
        !poison.empty()) {
      return failure_.Set({ExitCode::kPeerFailed, rank,
                           fmt::format("{} killed {} workers that computed it; the last was {}: {}",
                                       poison, PoisonWatch::kMostLosses, roster.Name(rank), why)});
    }
  }
  const Dispatcher::Dropped dropped = dispatcher_.Drop(rank);
  members_.Vacate(rank, text, now);
  waits_.Restart(now);  // the other workers get more work
  parts_.keeper.MemberChanged(events::MemberChange::LOST, rank, why, dropped.slices,
                              dropped.blocks);
  if (parts_.state.phase == Phase::kGathering &&
      parts_.config.cluster().on_lost_worker() == config::Cluster::CONTINUE &&
      rank < roster.workers()) {
    // The worker will not be replaced. The others start without it if there are enough of them.
    members_.GiveUp(rank);
    BeginIfComplete(now);
  }
  StartIfReady(now);
  AdmitIfNobodyIsLeft(now);
}

void Run::OnLeave(uint32_t rank, Time now) {
  const bool ends = parts_.config.cluster().on_lost_worker() == config::Cluster::ABORT;
  if (ends || !parts_.state.has_begun()) return OnLost(rank, ExitCode::kPeerFailed, "it left", now);
  // A worker that was reset may repeat its request.
  const Member& member = members_.roster().at(rank);
  if (member.leaving || member.state >= MemberState::kReleased) return;
  members_.OnLeave(rank);
  LogInfo("{} will leave after finishing its work", members_.roster().Name(rank));
  if (!member.weights_from) members_.Release(rank);
  dispatcher_.MarkChanged();
}

void Run::OnLeft(uint32_t rank, Time now) {
  const Dispatcher::Dropped dropped = dispatcher_.Drop(rank);
  parts_.keeper.MemberChanged(events::MemberChange::LEFT, rank, "", dropped.slices, dropped.blocks);
  parts_.values.Drop(rank, parts_.state.step, now);
  members_.Vacate(rank, "it left", now);
}

}  // namespace muster
