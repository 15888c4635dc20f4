#include "ps/run/run.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/link/gradient_check.h"
#include "common/trace/trace.h"

namespace muster {

using Phase = RunPosition::Phase;

namespace {

// A gradient that a worker delivers under one of its orders.
struct Delivery {
  uint32_t rank;
  wire::GradientPart part;
};

// Returns the gradients that a relay has added up, or the only one.
std::vector<Delivery> DeliveriesOf(uint32_t rank, const wire::GradientPart& part) {
  if (part.added_size() == 0) return {{rank, part}};
  std::vector<Delivery> deliveries;
  for (const wire::AddedPart& added : part.added()) {
    Delivery& next = deliveries.emplace_back(Delivery{added.rank(), {}});
    next.part.set_step(part.step());
    next.part.set_chunk(part.chunk());
    *next.part.mutable_subtree() = added.subtree();
    next.part.set_order(added.order());
    next.part.set_buffer(added.buffer());
  }
  return deliveries;
}

// Warns of the first of several such results in a row.
void WarnIfNotFinite(const EvaluationResult& result, RunKeeper& keeper) {
  const EvaluationRecord& before = keeper.progress.evaluations();
  const auto& last = result.set == wire::VALIDATION ? before.validated() : before.tested();
  if (result.finite() || (last && !last->finite())) return;
  keeper.recorder.Warn(fmt::format(
      "the {} loss at step {} is {}: the network's outputs for some samples, or their targets, are "
      "not finite or too large. Such weights are never the best; check the data, or try a smaller "
      "learning rate",
      SetName(result.set), result.version, result.loss));
}

// Applies the result of an evaluation that drives decisions. Returns a description of the decision,
// or "".
std::string Decide(const EvaluationResult& result, const LearningRateSchedule& schedule,
                   RunParts& parts) {
  Decisions& decisions = parts.decisions;
  const int64_t before = decisions.reductions();
  if (!parts.work.evaluator.IsRegularAfter(result.version - 1)) return "";
  decisions.Add(result);
  if (parts.state.finishing()) return "";
  if (const std::string reason = decisions.StopReason(); !reason.empty()) {
    parts.keeper.progress.StopEarly(reason);
    return "stopped early: " + reason;
  }
  const int64_t samples = parts.state.plan.At(result.version).samples_before;
  const double was = schedule.At(samples, before);
  const double is = schedule.At(samples, decisions.reductions());
  if (was == is) return "";
  return fmt::format("the learning rate falls from {:g} to {:g}: {}", was, is,
                     decisions.ReductionReason());
}

// Tells programs the means of the epoch that ends before step `next`, or of the steps that the last
// one has.
void PutEpoch(RunParts& parts, int64_t next, int64_t last) {
  const bool ends = next % parts.state.plan.StepsPerEpoch() == 0;
  if ((!ends && next != last) || !HasProgram(parts.config)) return;
  Progress& progress = parts.keeper.progress;
  parts.values.Put(fmt::format("epoch:{}", next), next, progress.EpochMeans());
  if (ends) progress.EndEpoch();
}

// The state of the run for its status and warnings.
RunWatch::Moment MomentOf(const RunParts& parts, const Waits& waits, const LateWorkers& late,
                          Run::Time now) {
  const RunPosition& state = parts.state;
  RunWatch::Moment moment{.state = state.phase == Phase::kGathering   ? "gathering"
                                   : state.phase == Phase::kPreparing ? "preparing"
                                                                      : "training"};
  const Evaluator& evaluator = parts.work.evaluator;
  if (evaluator.Evaluates(state.step)) {
    moment.state = "evaluating";
    moment.evaluating.emplace();
    moment.evaluating->set_done(evaluator.current().done());
    moment.evaluating->set_total(evaluator.current().blocks());
  } else if (state.phase == Phase::kTraining) {
    moment.waited = waits.seconds(now);
    moment.usual = late.UsualStep();
    moment.waits = [&waits, now] { return waits.StallText(now); };
  }
  if (state.phase != Phase::kGathering) {
    moment.checkpoint = parts.keeper.checkpoints.Status(state.plan, state.step);
  }
  return moment;
}

}  // namespace

Run::Run(const config::Config& config, const Graph& graph, Membership& members, Recorder& recorder,
         FirstFailure& failure, Time now, const ResumePoint* resume)
    : members_(members),
      failure_(failure),
      parts_(config, graph, members, recorder, failure, resume != nullptr,
             [this] { return resumption_.Describe(); }),
      dispatcher_(config, graph, parts_.state, members, parts_.feed, parts_.keeper, parts_.work),
      waits_(parts_, dispatcher_, now),
      resumption_(parts_, failure, resume),
      checked_at_(now) {}

// ---------------------------------------------------------------------------------- a step

// A step checks all losses before it updates anything.
void Run::BeginStep(int64_t step, Time now) {
  trace::AtStep(step);
  parts_.state.step = step;
  waits_.Restart(now);
  parts_.state.losses_complete = false;
  parts_.nonfinite.BeginStep(step);
  dispatcher_.BeginStep();
  if (parts_.work.shares.assignment().from_step == step) {
    parts_.keeper.watch.Begin(parts_.state.plan, parts_.work.shares.assignment());
  }
  parts_.engine.aggregator.BeginStep(step, parts_.state.plan.slices);
  parts_.feed.BeginStep(step);
  parts_.keeper.checkpoints.AtBoundary(parts_.state.plan, step);
}

std::string Run::OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss, Time now) {
  const trace::Span span("receive", "loss", {.rank = static_cast<int32_t>(rank)});
  if (parts_.state.phase != Phase::kTraining || loss.step() != parts_.state.step) {
    return fmt::format("a loss for step {} at step {}", loss.step(), parts_.state.step);
  }
  if (!parts_.keeper.progress.stop_reason().empty()) return "a loss after the program's stop";
  // Exactly one of config and program sets the rate.
  const bool program_sets_rate = HasProgram(parts_.config) && !parts_.config.has_learning_rate();
  const bool is_rate = std::isfinite(loss.learning_rate()) && loss.learning_rate() >= 0;
  if (loss.has_learning_rate() != (program_sets_rate && loss.samples() > 0) || !is_rate) {
    return fmt::format("a loss {} learning rate {}", loss.has_learning_rate() ? "with" : "without",
                       loss.learning_rate());
  }
  const bool is_weight = std::isfinite(loss.weight()) && loss.weight() >= 0 &&
                         (!loss.has_weight() || HasProgram(parts_.config));
  if (!is_weight) return fmt::format("a loss with weight {}", loss.weight());
  StepWork& work = parts_.work.slices;
  std::string why;
  const StepLosses::Added added = work.AddLoss(rank, loss, why);
  if (added == StepLosses::Added::kUnexpected) return why;
  if (added == StepLosses::Added::kDiffers) {
    // Comparing losses is enough. If two losses are bitwise equal, both workers read the same
    // samples and the same weights.
    const Roster& roster = members_.roster();
    const bool same_loss = work.losses().LossOf(loss.slice()) == loss.loss();
    failure_.Set({ExitCode::kFailure, std::nullopt,
                  fmt::format("{} and {} computed different {} for slice {} at step {}: their "
                              "processors, thread counts or libraries differ, or one is faulty",
                              roster.Name(work.losses().RankOf(loss.slice())), roster.Name(rank),
                              same_loss && loss.scalar_size() > 0 ? "scalars" : "losses",
                              loss.slice(), parts_.state.step)});
    return "";
  }
  if (added == StepLosses::Added::kOtherRate) {
    failure_.Set(
        {ExitCode::kUsage, std::nullopt,
         fmt::format("the program of {} set learning rate {} at step {}, another program "
                     "{}: the rate must be a function of the step and of what all processes have "
                     "(job.once, epoch.loss), not of sums of one process; in Python, give "
                     "schedulers to job.prepare",
                     members_.roster().Name(rank), loss.learning_rate(), parts_.state.step,
                     work.losses().learning_rate().value_or(0))});
    return "";
  }
  if (added == StepLosses::Added::kOtherWeight) {
    failure_.Set(
        {ExitCode::kUsage, std::nullopt,
         fmt::format("the program of {} gave a loss {} weight at step {}, and another slice "
                     "of the step differs: expected all or none to have one",
                     members_.roster().Name(rank), loss.has_weight() ? "with" : "without",
                     parts_.state.step)});
    return "";
  }
  dispatcher_.OnLoss(rank);
  if (added == StepLosses::Added::kSame) return "";
  parts_.nonfinite.CheckLoss(rank, loss.slice(), loss.loss());
  if (failure_.is_set() || !work.losses().Complete()) return "";
  parts_.state.losses_complete = true;
  if (MayProceed()) Proceed(now);
  return "";
}

// The evaluation of W(v) reads the buffer that the update to W(v + 1) may overwrite, so it must end
// first. The average is overwritten only by the next evaluation's average.
bool Run::MayProceed() const {
  return parts_.state.losses_complete && !parts_.keeper.checkpoints.copying() &&
         !parts_.work.evaluator.Evaluates(parts_.state.step);
}

// After a non-finite loss, the step still waits for its gradients, but does not apply them.
void Run::Proceed(Time now) {
  if (!resumption_.IsAsKept(/*is_end=*/false)) return;
  parts_.state.losses_complete = false;
  const int64_t next = parts_.state.step + 1;
  Evaluator& evaluator = parts_.work.evaluator;
  // The learning rate is final: the evaluation of W(v), which may change it, has ended, and the
  // next step was not ordered before.
  const StepLosses& losses = parts_.work.slices.losses();
  learning_rate_ = losses.learning_rate().value_or(
      schedule_.At(losses.batch().samples_before, parts_.decisions.reductions()));
  // Activate workers before the first chunk of W(v + 1) is sent.
  for (const uint32_t rank : members_.roster().ReadyToEnter()) {
    members_.Activate(rank, next);
    parts_.keeper.MemberChanged(events::MemberChange::JOINED, rank, "");
  }
  loss_scale_ = parts_.state.loss_scale.value();
  parts_.engine.aggregator.Proceed({.learning_rate = learning_rate_,
                                    .loss_scale = loss_scale_,
                                    .weight = losses.Weight().value_or(1),
                                    .skip = parts_.nonfinite.bad_loss(),
                                    .evaluate_average = evaluator.AverageIsDue(next),
                                    .observe = parts_.keeper.recorder.board().Wants(next)});
  // Orders are sent ahead of time, so that workers never wait for them.
  if (evaluator.IsDueAfter(parts_.state.step)) {
    dispatcher_.OrderEvaluation(next, evaluator.chooses(), now);
  }
  const bool waits = evaluator.running() && parts_.decisions.any();
  next_is_due_ = !waits && next < resumption_.LastStep();
  OrderNext(now);
}

// An order names the loss scale of its step, which depends on the whole gradient of the step
// before. Its weights come after that, too, so no worker waits longer.
void Run::OrderNext(Time now) {
  if (!parts_.nonfinite.KnowsNextScale(parts_.engine.aggregator)) return;
  if (std::exchange(next_is_due_, false)) dispatcher_.Want(parts_.state.step + 1, now);
}

std::string Run::OnGradient(uint32_t rank, const wire::GradientPart& part, const Payload& payload,
                            Time now) {
  const trace::Span span(
      "receive", {},
      {.chunk = static_cast<int32_t>(part.chunk()), .rank = static_cast<int32_t>(rank)});
  if (parts_.state.phase != Phase::kTraining || part.step() != parts_.state.step) {
    return fmt::format("a gradient for step {} at step {}", part.step(), parts_.state.step);
  }
  if (part.in_gpu()) return "a gradient in a GPU, which only a relay can read";
  StepWork& work = parts_.work.slices;
  const Roster& roster = members_.roster();
  const auto is_behind = [&](uint32_t other) {
    return other < roster.size() && roster.at(other).connection == roster.at(rank).connection;
  };
  std::string why = CheckGradient(part, rank, parts_.state.plan, is_behind);
  if (!why.empty()) return why;
  const std::vector<Delivery> deliveries = DeliveriesOf(rank, part);
  std::vector<const StepOrder*> orders;
  for (const Delivery& delivery : deliveries) {
    orders.push_back(work.Find(delivery.rank, delivery.part, why));
    if (orders.back() == nullptr) return why;
  }
  const TreeNode node{part.subtree().level(), part.subtree().index()};
  const std::optional<uint32_t> only =
      deliveries.size() == 1 ? std::optional(deliveries[0].rank) : std::nullopt;
  if (!parts_.engine.aggregator.Add(only, part.chunk(), node, part.empty(), payload)) {
    return fmt::format("got {} bytes for chunk {}, expected {}", payload.bytes, part.chunk(),
                       parts_.engine.chunks()[part.chunk()].floats() *
                           BytesOf(parts_.engine.variables.wire_type()));
  }
  for (size_t i = 0; i < orders.size(); ++i) {
    work.Arrive(*orders[i], deliveries[i].part);
    dispatcher_.OnGradient(deliveries[i].rank, *orders[i], waits_.seconds(now));
  }
  return "";
}

std::string Run::OnTell(uint32_t rank, const wire::Tell& tell, Time now) {
  const bool is_new = !parts_.values.told().Find(tell.key());
  std::string why = parts_.values.OnTell(rank, tell);
  if (why.empty() && is_new && tell.key().starts_with(SharedValues::kBits)) {
    constexpr size_t kMost = 300;
    const std::string name = tell.key().substr(std::strlen(SharedValues::kBits));
    parts_.keeper.recorder.Warn(fmt::format("rank {}: {}: {}: other runs may have other bits", rank,
                                            Printable(name), Printable(tell.value(), kMost)));
  }
  if (why.empty() && tell.key().starts_with(SharedValues::kLength)) {
    why = parts_.keeper.progress.ExpectSteps(tell.value());
  }
  if (!why.empty() || failure_.is_set() || tell.key() != SharedValues::kStop) return why;
  RunPosition& state = parts_.state;
  if (tell.step() != state.step || !parts_.AtBoundary()) {
    failure_.Set({ExitCode::kUsage, rank,
                  fmt::format("the program ended the run at step {}, but it is {} step {}",
                              tell.step(), parts_.AtBoundary() ? "at" : "within", state.step)});
  } else if (!state.finishing()) {
    // The usual end of an open run is not early, but no step follows it, either.
    parts_.keeper.progress.StopEarly("the program ended it: " + Printable(tell.value()));
    state.losses_complete = false;  // the step is not completed
    if (!parts_.work.evaluator.running()) Finish(now);
  }
  return "";
}

void Run::OnUpdaterTell(const wire::Tell& tell) {
  if (tell.key() == SharedValues::kStop) return;  // workers end the run
  const std::string why = parts_.values.OnTell(std::nullopt, tell);
  if (!why.empty()) failure_.Set({ExitCode::kUsage, std::nullopt, "the updater told " + why});
}

std::string Run::OnStepTimes(uint32_t rank, const wire::StepTimes& times) {
  if (std::string why = CheckTimes(times); !why.empty()) return why;
  parts_.keeper.progress.AddTimes(rank, times);
  parts_.keeper.recorder.board().AddTimes(rank, times);
  parts_.keeper.watch.AddTimes(rank, times);
  parts_.work.shares.AddTimes(rank, times);
  return "";
}

void Run::Advance(bool collect, Time now) {
  if (collect) parts_.engine.pool.Collect();
  if (MayProceed()) Proceed(now);
  if (parts_.state.phase == Phase::kTraining) OrderNext(now);
  const bool was_ordered = dispatcher_.ordered() >= parts_.state.step;
  dispatcher_.CatchUp(now);
  if (!was_ordered && dispatcher_.ordered() == parts_.state.step) waits_.Restart(now);
  parts_.nonfinite.CheckGradient(parts_.engine.aggregator);
  if (failure_.is_set()) return;
  if (parts_.state.phase != Phase::kTraining) return;
  if (parts_.engine.aggregator.StepIsComplete()) EndStep(now);
}

void Run::EndStep(Time now) {
  const trace::Span span("end step");
  const int64_t next = parts_.state.step + 1;
  const StepLosses& losses = parts_.work.slices.losses();
  parts_.keeper.progress.EndStep(
      {.samples = losses.batch().samples,
       .correct = losses.Correct(),
       .loss = losses.Loss(),
       .scalars = losses.Scalars(),
       .loss_scale = parts_.state.loss_scale.is_on() ? std::optional(loss_scale_) : std::nullopt},
      parts_.engine.aggregator.program_rate().value_or(learning_rate_),
      parts_.engine.aggregator.skips());
  parts_.work.shares.EndStep(parts_.state.step, parts_.keeper.progress.last_step_s());
  parts_.nonfinite.EndStep(parts_.engine.aggregator);
  if (failure_.is_set()) return;
  if (const auto seen = parts_.engine.aggregator.TakeObservation()) {
    parts_.keeper.recorder.board().Observed(next, *seen);
  }
  parts_.keeper.StepEnded(now);
  PutEpoch(parts_, next, resumption_.LastStep());
  parts_.values.AtStep(next);
  const bool evaluates = parts_.work.evaluator.running();
  if (evaluates) parts_.keeper.progress.BeginEvaluation();
  if (next < resumption_.LastStep()) return BeginStep(next, now);
  parts_.state.step = next;
  parts_.feed.BeginStep(next);
  trace::AtStep(next);
  parts_.state.phase = Phase::kFinishing;
  dispatcher_.BeginFinalEvaluation();
  if (!evaluates) return Finish(now);
  parts_.keeper.checkpoints.AtBoundary(parts_.state.plan, next);
}

// ---------------------------------------------------------------------------------- evaluations

std::string Run::OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block, Time now) {
  Evaluator& evaluator = parts_.work.evaluator;
  // Evaluations are ordered ahead of time, but their weights exist only when the step has ended.
  if (!evaluator.Evaluates(parts_.state.step) || !evaluator.Add(rank, block, now)) {
    return fmt::format("an unexpected block {} of W({}) at step {}", block.block(), block.version(),
                       parts_.state.step);
  }
  dispatcher_.OnBlock(rank);
  const Evaluation& evaluation = evaluator.current();
  if (evaluation.Complete()) {
    EndEvaluation(now);
  } else if (parts_.keeper.LiveLineIsDue(now)) {
    events::Event event;
    *event.mutable_progress() =
        parts_.keeper.progress.EvaluatingLine(evaluation.done(), evaluation.blocks());
    parts_.keeper.recorder.Record(event);
  }
  return "";
}

void Run::EndEvaluation(Time now) {
  Evaluator& evaluator = parts_.work.evaluator;
  const EvaluationResult result = evaluator.Finish();
  const bool chooses = result.set == evaluator.chooses();
  WarnIfNotFinite(result, parts_.keeper);
  parts_.keeper.progress.EndEvaluation(result);
  const std::string decision = chooses ? Decide(result, schedule_, parts_) : "";
  parts_.keeper.EvaluationEnded(result, decision, evaluator);
  if (chooses) {
    parts_.keeper.saver.OnEvaluated(parts_.state.step);
    if (result.finite()) {
      parts_.keeper.checkpoints.OnEvaluated(result.version, result.score());
    }
  }
  waits_.Restart(now);
  if (parts_.state.finishing() || !parts_.keeper.progress.stop_reason().empty()) {
    Finish(now);  // stopped early: no step after this evaluation was ordered
  } else if (parts_.decisions.any()) {
    dispatcher_.Want(parts_.state.step, now);  // the step had to wait for this evaluation
  }
}

// ---------------------------------------------------------------------------------- time and end

void Run::CheckTime(Time now) {
  if (parts_.state.phase == Phase::kGathering) {
    const auto failure = waits_.CheckStart(now);
    if (failure && resumption_.IsDoneAlready()) {
      parts_.keeper.progress.Begin(parts_.state.plan, members_.roster().workers(), members_.size());
      Start(now);
    } else if (failure && GiveUpMissing()) {
      BeginIfComplete(now);
    } else if (failure) {
      failure_.Set(*failure);
    }
  } else if (parts_.values.computing()) {
    // All wait for one process. The time counts only against that one.
    const auto passed = now - checked_at_;
    waits_.Extend(passed);
    dispatcher_.Extend(passed);
    members_.ExtendUnready(passed);
    if (const auto late = parts_.values.Late(now)) {
      OnLost(late->first, ExitCode::kDeadline, late->second, now);
    }
  } else {
    if (dispatcher_.ResetLate(now, waits_.since())) waits_.Restart(now);
    Waits::Verdict verdict = waits_.Check(now);
    if (verdict.failure) return failure_.Set(std::move(*verdict.failure));
    for (const auto& [rank, why] : verdict.lost) OnLost(rank, ExitCode::kDeadline, why, now);
  }
  checked_at_ = now;
  if (dispatcher_.TimeIsUp(now)) dispatcher_.MarkChanged();
  RunWatch& watch = parts_.keeper.watch;
  if (watch.IsDue(now)) watch.Look(MomentOf(parts_, waits_, dispatcher_.late(), now), now);
}

std::optional<Run::Time> Run::LateBefore(Time end) const {
  if (end < waits_.since() + LateWorkers::kLeast) return std::nullopt;  // the common case
  const Time late = waits_.since() + dispatcher_.late().After();
  return late < end ? std::optional(late) : std::nullopt;
}

void Run::Extend(std::chrono::steady_clock::duration suspension) {
  waits_.Extend(suspension);
  dispatcher_.Extend(suspension);
  members_.Extend(suspension);
  parts_.values.Extend(suspension);
}

// Programs run their own code after the last step before the server can save the program's state,
// so they learn here that the step has ended: an evaluation of no block.
void Run::Finish(Time now) {
  if (HasProgram(parts_.config)) {
    wire::ServerMessage message;
    message.mutable_evaluate()->set_version(parts_.state.step);
    message.mutable_evaluate()->set_block_size(1);
    members_.Broadcast(std::move(message));
  }
  parts_.state.phase = Phase::kFinishing;
  if (resumption_.TestIsDue()) {
    dispatcher_.BeginFinalEvaluation();
    dispatcher_.OrderEvaluation(parts_.state.step, wire::TEST, now);
    parts_.keeper.progress.BeginEvaluation();
    return;
  }
  if (!resumption_.IsAsKept(/*is_end=*/true)) return;
  parts_.state.phase = Phase::kDone;
  parts_.keeper.checkpoints.TakeLast();
}

bool Run::done() const {
  return parts_.state.phase == Phase::kDone && !parts_.keeper.checkpoints.busy();
}

events::Summary Run::End(events::Summary::End end) {
  events::Summary summary =
      parts_.keeper.progress.Summary(end, parts_.engine.variables.HashWeights(parts_.state.step));
  for (std::string& name : parts_.values.OtherBits()) summary.add_other_bits(std::move(name));
  resumption_.Put(summary);
  return parts_.keeper.Finish(std::move(summary));
}

}  // namespace muster
