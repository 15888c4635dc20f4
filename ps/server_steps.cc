// One step at the server: losses, gradients, updated chunks, and what the next step is.
#include <fmt/core.h>

#include <cmath>

#include "common/base/log.h"
#include "common/trace/trace.h"
#include "ps/server.h"
#include "ps/unsigned_nan.h"

namespace muster {

// b. Losses first: a bad one is caught before anything is updated.
void Server::BeginStep(int64_t step) {
  trace::AtStep(step);
  step_ = step;
  step_deadline_began_ = Clock::now();
  losses_.Begin(plan_, plan_.At(step));
  learning_rate_ = schedule_.At(losses_.batch().samples_before);
  bad_loss_.reset();
  aggregator_.BeginStep(step);
}

void Server::OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss) {
  const trace::Span span("receive", "loss", {.rank = static_cast<int32_t>(rank)});
  if (phase_ != Phase::kTraining || loss.step() != step_) {
    return Drop(roster_.Name(rank),
                fmt::format("a loss of step {} at step {}", loss.step(), step_));
  }
  if (!assignment_.Holds(rank, loss.slice()) ||
      !losses_.Add(loss.slice(), loss.samples(), loss.loss(), loss.correct())) {
    return Drop(roster_.Name(rank), fmt::format("an unexpected loss of slice {}", loss.slice()));
  }
  if (!std::isfinite(loss.loss()) && !bad_loss_) {
    bad_loss_ = {fmt::format("the loss of slice {} is {}", loss.slice(), UnsignedNan(loss.loss())),
                 rank};
    if (config_.run().on_nonfinite() == config::Run::ABORT) {
      throw Error(ExitCode::kNonfinite,
                  "{} at step {}, from {}: on_nonfinite is ABORT; nothing of this step is kept. A "
                  "smaller learning rate is the usual remedy",
                  bad_loss_->what, step_, roster_.Name(rank));
    }
  }
  if (!losses_.Complete()) return;
  // With a bad loss the step goes on: its gradients are waited for, and not used.
  aggregator_.LetGo({.learning_rate = learning_rate_,
                     .skip = bad_loss_.has_value(),
                     .evaluate_average = AverageIsDue(step_ + 1)});
  OrderNext(step_);
}

// Orders go out ahead of time, so that a worker never waits for one.
void Server::OrderNext(int64_t step) {
  const int64_t next = step + 1;
  if (EvaluationIsDueAfter(step)) {
    evaluation_.emplace(next, roster_.test_samples(), config_.evaluation().batch(), roster_.size(),
                        graph_.classes(), config_.evaluation().confusion_matrix());
    for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
      const Range blocks = evaluation_->BlocksOf(rank);
      wire::ServerMessage message = NewMessage();
      wire::Evaluate& evaluate = *message.mutable_evaluate();
      evaluate.set_version(next);
      evaluate.set_block_size(config_.evaluation().batch());
      evaluate.set_block_begin(static_cast<uint32_t>(blocks.begin));
      evaluate.set_block_end(static_cast<uint32_t>(blocks.end));
      evaluate.set_average(config_.evaluation().use_ema());
      evaluate.set_predictions(config_.evaluation().confusion_matrix());
      SendTo(rank, message);
    }
  }
  // An evaluation that may end the run is waited for.
  if (evaluation_ && config_.evaluation().has_stop_at_accuracy()) return;
  if (next < plan_.total_steps) OrderStep(next);
}

void Server::OrderStep(int64_t step) {
  wire::ServerMessage message = NewMessage();
  message.mutable_train()->set_step(step);
  message.mutable_train()->set_samples(plan_.At(step).samples);
  Broadcast(message);
}

// c. Parts of gradients, chunk by chunk.
void Server::OnGradient(uint32_t rank, const wire::GradientPart& part, const Payload& payload) {
  const trace::Span span(
      "receive", {},
      {.chunk = static_cast<int32_t>(part.chunk()), .rank = static_cast<int32_t>(rank)});
  if (phase_ != Phase::kTraining || part.step() != step_) {
    return Drop(roster_.Name(rank),
                fmt::format("a gradient of step {} at step {}", part.step(), step_));
  }
  const TreeNode node{part.subtree().level(), part.subtree().index()};
  switch (aggregator_.Add(rank, part.chunk(), node, part.empty(), payload)) {
    case PartialGradients::Result::kAccepted:
      return;
    case PartialGradients::Result::kRepeated:
      return Drop(roster_.Name(rank), fmt::format("chunk {} again", part.chunk()));
    case PartialGradients::Result::kUnknownChunk:
      return Drop(roster_.Name(rank),
                  fmt::format("chunk {} of {}", part.chunk(), aggregator_.chunks().size()));
    case PartialGradients::Result::kUnknownSubtree:
      return Drop(roster_.Name(rank),
                  fmt::format("subtree {}.{}, which is not its own", node.level, node.index));
    case PartialGradients::Result::kWrongSize:
      return Drop(roster_.Name(rank),
                  fmt::format("{} bytes for chunk {}, which has {}", payload.bytes, part.chunk(),
                              aggregator_.chunks()[part.chunk()].floats() * sizeof(float)));
  }
}

// d. A chunk of W(v + 1) goes out as soon as it is written, and so does that of its average where
// an evaluation wants it.
void Server::PublishChunk(int64_t version, size_t chunk) {
  const trace::Span span("publish", {}, {.step = version, .chunk = static_cast<int32_t>(chunk)});
  wire::ServerMessage message = NewMessage();
  message.mutable_weights_chunk()->set_version(version);
  message.mutable_weights_chunk()->set_chunk(static_cast<uint32_t>(chunk));
  Broadcast(message, variables_.WireWeights(version, aggregator_.chunks()[chunk]));
  if (!AverageIsDue(version)) return;
  message.mutable_weights_chunk()->set_average(true);
  Broadcast(message, variables_.WireAverage(aggregator_.chunks()[chunk]));
}

void Server::EndStepIfComplete() {
  if (phase_ != Phase::kTraining || !aggregator_.StepIsComplete()) return;
  const trace::Span span("end step");
  progress_.EndStep(losses_, learning_rate_, aggregator_.skips());
  if (aggregator_.skips()) {
    CountSkippedStep();
  } else {
    skipped_in_a_row_ = 0;
  }
  const int64_t next = step_ + 1;
  const bool last = next == plan_.total_steps;
  if (next % config_.run().log_every_steps() == 0 || last) {
    const auto line = progress_.LogLine();
    reporter_.Metrics(line);
    reporter_.Log(line);
  }
  if (LiveLineIsDue()) {
    reporter_.Progress(progress_.LiveLine());
  }
  if (evaluation_) progress_.BeginEvaluation();
  if (last) {
    step_ = next;
    trace::AtStep(next);
    phase_ = Phase::kStopping;
    done_ = !evaluation_;
  } else {
    BeginStep(next);
  }
}

void Server::CheckFinite() const {
  if (!aggregator_.nonfinite() || aggregator_.skips()) return;
  const Nonfinite& bad = *aggregator_.nonfinite();
  const char* why = "on_nonfinite is ABORT; nothing of this step is kept";
  if (config_.run().on_nonfinite() == config::Run::SKIP_STEP) {
    // While gradients are still being added, the decision is ahead.
    if (aggregator_.averages()) return;
    why = "a finite gradient that breaks a weight is not skipped";
  }
  throw Error(ExitCode::kNonfinite,
              "{} at step {}{}{}: {}. A smaller learning rate is the usual remedy", bad.what, step_,
              bad.rank ? ", from " : "", bad.rank ? roster_.Name(*bad.rank) : "", why);
}

// SKIP_STEP: the step is complete and has changed nothing.
void Server::CountSkippedStep() {
  const Nonfinite& bad = bad_loss_ ? *bad_loss_ : *aggregator_.nonfinite();
  const std::string from = bad.rank ? ", from " + roster_.Name(*bad.rank) : "";
  ++skipped_in_a_row_;
  LogWarning("skipped step {}: {}{} ({} in a row)", step_, bad.what, from, skipped_in_a_row_);
  events::SkippedStep skipped;
  skipped.set_step(step_);
  skipped.set_reason(bad.what);
  skipped.set_in_a_row(skipped_in_a_row_);
  if (bad.rank) skipped.set_rank(*bad.rank);
  reporter_.SkippedStep(std::move(skipped));
  if (skipped_in_a_row_ < config_.run().max_skipped_steps()) return;
  throw Error(ExitCode::kNonfinite,
              "{} at step {}{}: {} skipped in a row, which is run.max_skipped_steps. A smaller "
              "learning rate is the usual remedy",
              bad.what, step_, from,
              skipped_in_a_row_ == 1 ? "1 step" : fmt::format("{} steps", skipped_in_a_row_));
}

}  // namespace muster
