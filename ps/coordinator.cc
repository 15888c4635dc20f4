#include "ps/coordinator.h"

#include <fmt/core.h>

#include "common/base/join.h"
#include "common/base/log.h"
#include "common/config/batch_norm_check.h"
#include "common/config/chunk_bytes.h"
#include "common/config/config.h"
#include "common/trace/trace.h"
#include "ps/choose_kernels.h"
#include "ps/started_event.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kWaitingInterval{5};

}  // namespace

Coordinator::Coordinator(const config::Config& config, const Graph& graph, Membership& members,
                         Reporter& reporter, FirstFailure& failure)
    : config_(config),
      graph_(graph),
      members_(members),
      reporter_(reporter),
      failure_(failure),
      nonfinite_(config.run(), members, reporter, failure),
      variables_(graph.layout(),
                 {.state_arenas = static_cast<size_t>(OptimizerState(config.optimizer())),
                  .average = config.optimizer().has_ema_decay(),
                  .wire_type = WireTypeOf(config.cluster()),
                  .seed = config.run().seed()}),
      pool_(config.server().threads()),
      aggregator_(variables_, pool_, CutChunks(graph.layout(), config.cluster()),
                  config.optimizer(), ChooseKernels(config.server().instruction_set()),
                  nonfinite_.may_skip(),
                  [this](int64_t version, size_t chunk) { PublishChunk(version, chunk); }),
      evaluator_(config.evaluation(), config.run().dir(), graph.classes(),
                 config.tensorboard().enabled() ? config.tensorboard().images() : 0),
      board_(config, graph, files_),
      watch_(config.run().dir(), members, progress_, reporter, files_),
      deadlines_(config.deadlines()),
      next_waiting_(Clock::now() + kWaitingInterval) {}

void Coordinator::Begin() {
  const Roster& roster = members_.roster();
  plan_ = PlanSteps(config_, roster.train_samples());
  CheckBatchNorms(graph_, plan_);
  schedule_ = LearningRateSchedule(config_.learning_rate(), members_.size(),
                                   plan_.At(plan_.total_steps).samples_before);
  if (config_.learning_rate().scaling() != config::LearningRate::NONE) {
    LogInfo("learning rate: base {:g} is scaled to {:g} ({}, {} workers)",
            config_.learning_rate().base(), schedule_.base(),
            config::LearningRate::Scaling_Name(config_.learning_rate().scaling()), members_.size());
  }
  evaluator_.Plan(plan_, roster.test_samples(), members_.size());
  assignment_ = AssignEvenly(plan_.slices, members_.size());
  aggregator_.Expect(assignment_);
  members_.WelcomeAll({.plan = plan_,
                       .assignment = assignment_,
                       .chunks = aggregator_.chunks(),
                       .wire_type = variables_.wire_type(),
                       .first_step = step_});
  phase_ = Phase::kPreparing;
  deadlines_.Restart();
  for (size_t c = 0; c < aggregator_.chunks().size(); ++c) PublishChunk(step_, c);
  events::Started started = StartedEvent(plan_, roster);
  started.set_parameters(graph_.layout().parameter_count());
  started.set_chunks(static_cast<int64_t>(aggregator_.chunks().size()));
  started.set_instruction_set(instruction_set());
  reporter_.Started(std::move(started));
}

void Coordinator::SendWeights(uint32_t rank) {
  for (size_t c = 0; c < aggregator_.chunks().size(); ++c) {
    wire::ServerMessage message = WeightsMessage(step_, c);
    members_.Send(rank, message, variables_.WireWeights(step_, aggregator_.chunks()[c]));
  }
}

void Coordinator::OnReady(uint32_t rank) {
  if (!members_.OnReady(rank)) return;
  phase_ = Phase::kTraining;
  LogInfo("all {} workers are ready: {} steps of {} samples", members_.size(), plan_.total_steps,
          plan_.global_batch);
  progress_.Begin(plan_, members_.size());
  board_.Begin(step_);
  watch_.Begin(plan_, assignment_);
  OrderStep(step_);
  BeginStep(step_);
}

// Losses first: a bad one is caught before anything is updated.
void Coordinator::BeginStep(int64_t step) {
  trace::AtStep(step);
  step_ = step;
  deadlines_.Restart();
  losses_.Begin(plan_, plan_.At(step));
  learning_rate_ = schedule_.At(losses_.batch().samples_before);
  nonfinite_.BeginStep(step);
  aggregator_.BeginStep(step);
}

std::string Coordinator::OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss) {
  const trace::Span span("receive", "loss", {.rank = static_cast<int32_t>(rank)});
  if (phase_ != Phase::kTraining || loss.step() != step_) {
    return fmt::format("a loss of step {} at step {}", loss.step(), step_);
  }
  if (!assignment_.Holds(rank, loss.slice()) ||
      !losses_.Add(loss.slice(), loss.samples(), loss.loss(), loss.correct())) {
    return fmt::format("an unexpected loss of slice {}", loss.slice());
  }
  nonfinite_.CheckLoss(rank, loss.slice(), loss.loss());
  if (failure_.is_set()) return "";
  if (!losses_.Complete()) return "";
  // With a bad loss the step goes on: its gradients are waited for, and not used.
  aggregator_.Proceed({.learning_rate = learning_rate_,
                       .skip = nonfinite_.bad_loss(),
                       .evaluate_average = evaluator_.AverageIsDue(step_ + 1),
                       .observe = board_.Wants(step_ + 1)});
  OrderNext();
  return "";
}

// Orders go out ahead of time, so that a worker never waits for one.
void Coordinator::OrderNext() {
  const int64_t next = step_ + 1;
  if (evaluator_.IsDueAfter(step_)) {
    const std::vector<wire::Evaluate> orders = evaluator_.Begin(next);
    for (uint32_t rank = 0; rank < orders.size(); ++rank) {
      wire::ServerMessage message = members_.NewMessage();
      *message.mutable_evaluate() = orders[rank];
      members_.Send(rank, message);
    }
  }
  if (evaluator_.running() && evaluator_.decides()) return;
  if (next < plan_.total_steps) OrderStep(next);
}

void Coordinator::OrderStep(int64_t step) {
  wire::ServerMessage message = members_.NewMessage();
  message.mutable_train()->set_step(step);
  message.mutable_train()->set_samples(plan_.At(step).samples);
  members_.Broadcast(message);
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
  const TreeNode node{part.subtree().level(), part.subtree().index()};
  switch (aggregator_.Add(rank, part.chunk(), node, part.empty(), payload)) {
    case PartialGradients::Result::kAccepted:
      break;
    case PartialGradients::Result::kRepeated:
      return fmt::format("chunk {} again", part.chunk());
    case PartialGradients::Result::kUnknownChunk:
      return fmt::format("chunk {} of {}", part.chunk(), aggregator_.chunks().size());
    case PartialGradients::Result::kUnknownSubtree:
      return fmt::format("subtree {}.{}, which is not its own", node.level, node.index);
    case PartialGradients::Result::kWrongSize:
      return fmt::format("{} bytes for chunk {}, which has {}", payload.bytes, part.chunk(),
                         aggregator_.chunks()[part.chunk()].floats() * sizeof(float));
  }
  return "";
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
  members_.Broadcast(message, variables_.WireWeights(version, aggregator_.chunks()[chunk]));
  if (phase_ != Phase::kTraining || !evaluator_.AverageIsDue(version)) return;
  message.mutable_weights_chunk()->set_average(true);
  members_.Broadcast(message, variables_.WireAverage(aggregator_.chunks()[chunk]));
}

void Coordinator::Advance(bool collect) {
  if (collect) pool_.Collect();
  nonfinite_.CheckGradient(aggregator_);
  if (failure_.is_set()) return;
  if (phase_ == Phase::kTraining && aggregator_.StepIsComplete()) EndStep();
}

void Coordinator::EndStep() {
  const trace::Span span("end step");
  progress_.EndStep(losses_, learning_rate_, aggregator_.skips());
  nonfinite_.EndStep(aggregator_);
  if (failure_.is_set()) return;
  const int64_t next = step_ + 1;
  ReportStep(next);
  if (evaluator_.running()) progress_.BeginEvaluation();
  if (next < plan_.total_steps) return BeginStep(next);
  step_ = next;
  trace::AtStep(next);
  phase_ = Phase::kFinishing;
  done_ = !evaluator_.running();
}

// Blocks of evaluations.
std::string Coordinator::OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block) {
  if (!evaluator_.Add(rank, block)) return fmt::format("an unexpected block {}", block.block());
  const Evaluation& evaluation = evaluator_.current();
  if (evaluation.Complete()) {
    EndEvaluation();
  } else if (LiveLineIsDue()) {
    reporter_.Progress(progress_.EvaluatingLine(evaluation.done(), evaluation.blocks()));
  }
  return "";
}

void Coordinator::EndEvaluation() {
  const EvaluationResult result = evaluator_.Finish();
  progress_.EndEvaluation(result);
  const auto line = progress_.EvaluationLine();
  reporter_.Metrics(line);
  reporter_.Evaluation(line);
  board_.Evaluation(line, evaluator_.TakeImages());
  watch_.Evaluation(line);
  LogInfo("step {}: test accuracy {:.4f}, test loss {:.4f}", result.version, result.accuracy,
          result.loss);
  deadlines_.Restart();
  if (phase_ == Phase::kFinishing) {
    done_ = true;
  } else if (const std::string reason = evaluator_.StopReason(result); !reason.empty()) {
    // No worker has been told of a step after this evaluation.
    LogInfo("{}", reason);
    progress_.StopEarly(reason);
    phase_ = Phase::kFinishing;
    done_ = true;
  } else if (evaluator_.decides()) {
    OrderStep(step_);  // it was held back
  }
}

// Nobody waits for ever: the deadline of each phase, and who missed it.
void Coordinator::CheckDeadlines(std::chrono::steady_clock::time_point now) {
  if (phase_ == Phase::kGathering) {
    CheckStart(now);
  } else if (phase_ == Phase::kPreparing) {
    if (const auto limit = deadlines_.ReadyMissed(now)) {
      FailLate(members_.UnreadyRanks(), "no Ready", *limit);
    }
  } else if (evaluator_.running() &&
             (phase_ == Phase::kFinishing || evaluator_.current().version() == step_)) {
    const Evaluation& evaluation = evaluator_.current();
    if (const auto limit = deadlines_.EvaluationMissed(now, evaluation.last_progress())) {
      FailLate(evaluation.MissingRanks(), "no evaluation", *limit);
    }
  } else if (phase_ == Phase::kTraining) {
    CheckStep(now);
  }
  members_.CheckSilence(now, config_.deadlines().silence_s());
  if (watch_.IsDue(now)) Look(now);
}

void Coordinator::CheckStart(Clock::time_point now) {
  const std::vector<uint32_t> missing = members_.roster().MissingRanks();
  if (const auto limit = deadlines_.JoinMissed(now)) {
    failure_.Set({ExitCode::kDeadline, std::nullopt,
                  fmt::format("{} of {} workers did not join within {:g} s: rank {} missing",
                              missing.size(), members_.size(), *limit, Join(missing, ", "))});
    return;
  }
  if (now < next_waiting_) return;
  next_waiting_ = now + kWaitingInterval;
  LogInfo("waiting for rank {} ({:.0f} s)", Join(missing, ", "), deadlines_.waited(now));
  reporter_.Waiting(missing, deadlines_.waited(now));
}

std::optional<double> Coordinator::MedianStep() const {
  return progress_.steps() == 0 ? std::nullopt : std::optional(progress_.MedianStep());
}

// Who keeps the step from going on, and what is missing of them.
std::vector<uint32_t> Coordinator::LateRanks(std::string& what) const {
  what = "no loss";
  if (std::vector<uint32_t> late = losses_.MissingRanks(assignment_); !late.empty()) return late;
  what = "no complete gradient";
  return aggregator_.MissingRanks();
}

void Coordinator::CheckStep(Clock::time_point now) {
  const auto limit = deadlines_.StepMissed(now, MedianStep());
  if (!limit) return;
  std::string what;
  const std::vector<uint32_t> late = LateRanks(what);
  FailLate(late, what, *limit);
}

void Coordinator::FailLate(const std::vector<uint32_t>& ranks, const std::string& what,
                           double limit) {
  failure_.Set({ExitCode::kDeadline, std::nullopt,
                fmt::format("{} from {} within {:g} s (step {})", what, members_.Names(ranks),
                            limit, step_)});
}

void Coordinator::Forgive(Clock::duration own_gap) {
  deadlines_.Forgive(own_gap);
  evaluator_.Forgive(own_gap);
}

}  // namespace muster
