#include "ps/coordinator.h"

#include <fmt/core.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/config_check.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/trace/trace.h"
#include "ps/checkpoint/run_id.h"
#include "ps/checkpoint_arenas.h"
#include "ps/choose_kernels.h"
#include "ps/initial_weights.h"
#include "ps/started_event.h"

namespace muster {
namespace {

// Values to predict have no confusion matrix, and no images that show a class.
config::Evaluation EvaluationOf(const config::Config& config) {
  config::Evaluation evaluation = config.evaluation();
  if (HasValues(config.data())) evaluation.clear_confusion_matrix();
  return evaluation;
}

uint32_t ImagesOf(const config::Config& config) {
  const bool shows_images = config.tensorboard().enabled() && !HasValues(config.data());
  return shows_images ? config.tensorboard().images() : 0;
}

}  // namespace

Coordinator::Coordinator(const config::Config& config, const Graph& graph, Membership& members,
                         Reporter& reporter, FirstFailure& failure, const ResumePoint* resume,
                         bool evaluate_only)
    : config_(config),
      graph_(graph),
      members_(members),
      reporter_(reporter),
      failure_(failure),
      evaluate_only_(evaluate_only),
      run_id_(resume != nullptr ? resume->state().run_id() : NewRunId()),
      nonfinite_(config.run(), members, reporter, failure),
      variables_(graph.layout(),
                 {.state_arenas = static_cast<size_t>(TraitsOf(config.optimizer()).state_arrays),
                  .average = config.optimizer().has_ema_decay(),
                  // The average is a part of what a run leaves behind, whenever it ends.
                  .keep_previous = config.optimizer().has_ema_decay(),
                  .wire_type = WireTypeOf(config.cluster()),
                  .seed = config.run().seed(),
                  .restored = resume != nullptr}),
      pool_(config.server().threads()),
      aggregator_(variables_, pool_, CutChunks(graph.layout(), config.cluster()),
                  config.optimizer(), ChooseKernels(config.server().instruction_set()),
                  nonfinite_.may_skip(),
                  [this](int64_t version, size_t chunk) { PublishChunk(version, chunk); }),
      work_(members, aggregator_.chunks().size()),
      shares_(config.cluster().shares() == config::Cluster::MEASURED, members.size()),
      published_(aggregator_.chunks().size()),
      recovers_(config.cluster().on_lost_worker() != config::Cluster::ABORT),
      changes_(reporter),
      evaluator_(EvaluationOf(config), config.run().dir(), graph.classes(), ImagesOf(config),
                 NamesOfClasses(config.data())),
      decisions_(config),
      progress_(HasValues(config.data())),
      saver_(config, graph, variables_, progress_, evaluate_only),
      board_(config, graph, files_),
      watch_(config.run().dir(), members, progress_, reporter, files_),
      deadlines_(config.deadlines()),
      checkpoints_(
          config, run_id_, variables_, pool_, reporter, resume, [this] { return Describe(); },
          [this](int64_t step) {
            saver_.writer().AwaitBest(step);
            board_.AwaitWritten();  // what is before it is not written again
          }),
      next_waiting_(Clock::now() + kWaitingInterval) {
  if (resume == nullptr) {
    LoadInitialWeights(config.run(), graph, variables_);
    return;
  }
  resumed_ = resume->state();
  step_ = resumed_->step();
  RestoreVariables(*resume->checkpoint.reader, variables_);
  progress_.Restore(resumed_->progress());
  decisions_.Restore(resumed_->decisions());
  convolutions_.Restore(resumed_->arithmetic());
  saver_.Restore(*resume);
  for (const std::string& text : {saver_.lost(), saver_.damaged()}) {
    if (!text.empty()) reporter.Warning(text);
  }
  nonfinite_.Restore(resumed_->skipped_in_a_row());
}

void Coordinator::Begin() {
  const Roster& roster = members_.roster();
  plan_ = PlanSteps(config_, roster.train_samples());
  if (!FitsCounters()) return;
  if (!evaluate_only_) CheckBatchNorms(graph_, plan_);
  schedule_ = LearningRateSchedule(config_.learning_rate(), roster.workers(),
                                   plan_.At(plan_.total_steps).samples_before);
  if (config_.learning_rate().scaling() != config::LearningRate::NONE) {
    LogInfo("learning rate: base {:g} is scaled to {:g} ({}, {} workers)",
            config_.learning_rate().base(), schedule_.base(),
            config::LearningRate::Scaling_Name(config_.learning_rate().scaling()),
            roster.workers());
  }
  evaluator_.Plan(plan_, roster.validation_samples(), roster.test_samples());
  if (!FitsCheckpoint()) return;
  work_.Begin(plan_, step_);
  shares_.Begin(plan_, step_);
  members_.WelcomeAll({.plan = plan_,
                       .assignment = work_.assignment(),
                       .chunks = aggregator_.chunks(),
                       .wire_type = variables_.wire_type()});
  phase_ = Phase::kPreparing;
  for (const uint32_t rank : members_.Seated()) members_.Enter(rank, step_);
  deadlines_.Restart();
  for (size_t c = 0; c < aggregator_.chunks().size(); ++c) PublishChunk(step_, c);
  events::Started started = StartedEvent(plan_, roster);
  started.set_parameters(graph_.layout().parameter_count());
  started.set_chunks(static_cast<int64_t>(aggregator_.chunks().size()));
  started.set_instruction_set(instruction_set());
  reporter_.Started(std::move(started));
}

// Losses first: a bad one is caught before anything is updated.
void Coordinator::BeginStep(int64_t step) {
  trace::AtStep(step);
  step_ = step;
  deadlines_.Restart();
  losses_.Begin(plan_, plan_.At(step));
  losses_complete_ = false;
  nonfinite_.BeginStep(step);
  work_.BeginStep(step);
  ExpectShares();
  aggregator_.BeginStep(step);
  published_.assign(published_.size(), false);
  lost_work_.BeginStep();
  repair_at_.reset();
  somebody_late_ = orphans_wait_ = false;
  first_part_s_.reset();
  // Of those that were lost or fenced since the step was ordered.
  repair_due_ = recovers_ && (members_.Staying() != members_.Entered() ||
                              work_.leases().HeldSlices(step, plan_.slices) < plan_.slices);
  checkpoints_.AtBoundary(plan_, step);
}

std::string Coordinator::OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss) {
  const trace::Span span("receive", "loss", {.rank = static_cast<int32_t>(rank)});
  if (phase_ != Phase::kTraining || loss.step() != step_) {
    return fmt::format("a loss of step {} at step {}", loss.step(), step_);
  }
  std::string why;
  const Lease* const lease = work_.LeaseOf(rank, step_, loss, why);
  if (lease == nullptr) return why;
  if (lease->losses.contains(loss.slice())) return fmt::format("slice {} again", loss.slice());
  switch (losses_.Add(rank, loss.slice(), loss.samples(), loss.loss(), loss.correct())) {
    case StepLosses::Added::kNew:
      work_.AddLoss(*lease, loss.slice());
      break;
    case StepLosses::Added::kSame:
      work_.AddLoss(*lease, loss.slice());
      HelpIsFree(rank);
      return "";
    case StepLosses::Added::kDiffers:
      FailDifferent(rank, loss.slice());
      return "";
    case StepLosses::Added::kUnexpected:
      return fmt::format("an unexpected loss of slice {}", loss.slice());
  }
  HelpIsFree(rank);
  nonfinite_.CheckLoss(rank, loss.slice(), loss.loss());
  if (failure_.is_set()) return "";
  if (!losses_.Complete()) return "";
  losses_complete_ = true;
  if (MayProceed()) Proceed();
  return "";
}

// W(v) is read by the evaluation of it, and overwritten by the update of v + 1: it is over before
// that is ordered. Its average is overwritten by the next evaluation's.
bool Coordinator::MayProceed() const {
  return losses_complete_ && !checkpoints_.copying() && !Evaluates();
}

// With a bad loss the step goes on: its gradients are waited for, and not used.
void Coordinator::Proceed() {
  losses_complete_ = false;
  // Here, since the evaluation of W(v) may have changed it, and has ended: no step is ordered
  // before.
  learning_rate_ = schedule_.At(losses_.batch().samples_before, decisions_.reductions());
  if (somebody_late_) FenceAll(work_.FenceBehind(step_));
  // Before the first chunk of W(v + 1) goes out.
  for (const uint32_t rank : members_.ReadyToEnter()) {
    work_.Admit(rank, step_ + 1);
    Changed(events::MemberChange::JOINED, rank, "");
  }
  aggregator_.Proceed({.learning_rate = learning_rate_,
                       .skip = nonfinite_.bad_loss(),
                       .evaluate_average = evaluator_.AverageIsDue(step_ + 1),
                       .observe = board_.Wants(step_ + 1)});
  OrderNext();
}

// Orders go out ahead of time, so that a worker never waits for one.
void Coordinator::OrderNext() {
  const int64_t next = step_ + 1;
  if (evaluator_.IsDueAfter(step_)) OrderEvaluation(next, evaluator_.chooses());
  if (evaluator_.running() && decisions_.any()) return;
  if (next < plan_.total_steps) Order(next);
}

// Parts of gradients, chunk by chunk.
std::string Coordinator::OnGradient(uint32_t rank, const wire::GradientPart& part,
                                    const Payload& payload) {
  const trace::Span span(
      "receive", {},
      {.chunk = static_cast<int32_t>(part.chunk()), .rank = static_cast<int32_t>(rank)});
  if (phase_ != Phase::kTraining || part.step() != step_) {
    return fmt::format("a gradient of step {} at step {}", part.step(), step_);
  }
  std::string why;
  const Lease* const lease = work_.LeaseOf(rank, step_, part, why);
  if (lease == nullptr) return why;
  switch (aggregator_.Add(rank, part.chunk(), lease->node, part.empty(), payload)) {
    case PartialGradients::Result::kAccepted:
    case PartialGradients::Result::kCovered:  // somebody else was first, with the same bits
      work_.Bring(*lease, part.chunk());
      if (members_.roster().at(rank).leaving) repair_due_ = true;  // this may have been the last
      // Its rest is missing, if a part of it had come before; and who was late can help now.
      if ((lease->again || lease->late) && lease->brought()) repair_due_ = recovers_;
      HelpIsFree(rank);
      if (lease->brought() && !first_part_s_ && !work_.leases().Owes(rank, step_)) {
        first_part_s_ = deadlines_.waited_since_restart(Clock::now());
      }
      return "";
    case PartialGradients::Result::kUnknownChunk:
    case PartialGradients::Result::kWrongSize:
      break;
  }
  return fmt::format("{} bytes for chunk {}, which has {}", payload.bytes, part.chunk(),
                     aggregator_.chunks()[part.chunk()].floats() * sizeof(float));
}

// Losses are compared, gradients are not: a worker whose loss is the same to the last bit has read
// the same samples and the same weights.
void Coordinator::FailDifferent(uint32_t rank, int64_t slice) {
  failure_.Set(
      {ExitCode::kFailure, std::nullopt,
       fmt::format("{} and {} computed different losses of slice {} at step {}: their "
                   "processors, threads or libraries differ, or one of them is broken",
                   members_.Name(losses_.RankOf(slice)), members_.Name(rank), slice, step_)});
}

wire::ServerMessage Coordinator::WeightsMessage(int64_t version, size_t chunk) const {
  wire::ServerMessage message = members_.NewMessage();
  message.mutable_weights_chunk()->set_version(version);
  message.mutable_weights_chunk()->set_chunk(static_cast<uint32_t>(chunk));
  return message;
}

// A chunk of W(v + 1) goes out as soon as it is written, and so does that of its average where
// an evaluation wants it.
void Coordinator::PublishChunk(int64_t version, size_t chunk) {
  const trace::Span span("publish", {}, {.step = version, .chunk = static_cast<int32_t>(chunk)});
  wire::ServerMessage message = WeightsMessage(version, chunk);
  if (version == step_ + 1) published_[chunk] = true;
  members_.Broadcast(message, variables_.WireWeights(version, aggregator_.chunks()[chunk]));
  if (phase_ == Phase::kTraining && evaluator_.AverageIsDue(version))
    PublishAverage(version, chunk);
}

void Coordinator::Advance(bool collect) {
  if (collect) pool_.Collect();
  if (MayProceed()) Proceed();
  if (repair_due_) Repair();
  nonfinite_.CheckGradient(aggregator_);
  if (failure_.is_set()) return;
  if (phase_ == Phase::kTraining && aggregator_.StepIsComplete()) EndStep();
}

void Coordinator::EndStep() {
  const trace::Span span("end step");
  progress_.EndStep(losses_, learning_rate_, aggregator_.skips());
  shares_.EndStep(step_, progress_.last_step_s());
  nonfinite_.EndStep(aggregator_);
  if (failure_.is_set()) return;
  FenceAll(work_.FenceLate(step_));
  const int64_t next = step_ + 1;
  ReportStep(next);
  if (evaluator_.running()) progress_.BeginEvaluation();
  if (next < plan_.total_steps) return BeginStep(next);
  step_ = next;
  published_.assign(published_.size(), false);  // there is no W(step_ + 1)
  trace::AtStep(next);
  phase_ = Phase::kFinishing;
  lost_work_.BeginStep();
  if (!evaluator_.running()) return Finish();
  repair_due_ = recovers_;
  checkpoints_.AtBoundary(plan_, step_);
}

}  // namespace muster
