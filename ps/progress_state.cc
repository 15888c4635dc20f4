// What of the progress a checkpoint keeps.
#include "ps/progress.h"

namespace muster {

checkpoint::Sums Progress::Sums::Keep() const {
  checkpoint::Sums kept;
  kept.set_steps(steps);
  kept.set_samples(samples);
  kept.set_correct(correct);
  kept.set_skipped_steps(skipped_steps);
  kept.set_skipped_samples(skipped_samples);
  kept.set_loss(loss);
  kept.set_seconds(seconds);
  return kept;
}

void Progress::Sums::Restore(const checkpoint::Sums& kept) {
  steps = kept.steps();
  samples = kept.samples();
  correct = kept.correct();
  skipped_steps = kept.skipped_steps();
  skipped_samples = kept.skipped_samples();
  loss = kept.loss();
  seconds = kept.seconds();
}

namespace {

checkpoint::Evaluated Keep(const EvaluationResult& result) {
  checkpoint::Evaluated kept;
  kept.set_step(result.version);
  kept.set_accuracy(result.accuracy);
  kept.set_loss(result.loss);
  if (result.top5_accuracy) kept.set_top5_accuracy(*result.top5_accuracy);
  kept.set_validation(result.set == wire::VALIDATION);
  return kept;
}

EvaluationResult Restored(const checkpoint::Evaluated& kept) {
  EvaluationResult result{.set = kept.validation() ? wire::VALIDATION : wire::TEST,
                          .version = kept.step(),
                          .loss = kept.loss(),
                          .accuracy = kept.accuracy()};
  if (kept.has_top5_accuracy()) result.top5_accuracy = kept.top5_accuracy();
  return result;
}

}  // namespace

checkpoint::Progress Progress::Keep() const {
  checkpoint::Progress kept;
  *kept.mutable_total() = total_.Keep();
  *kept.mutable_since_log() = since_log_.Keep();
  *kept.mutable_last_log() = last_log_.Keep();
  kept.set_learning_rate(learning_rate_);
  if (evaluated()) *kept.mutable_last_evaluation() = muster::Keep(*evaluated());
  if (validated_ && tested_) *kept.mutable_test() = muster::Keep(*tested_);
  kept.set_best_accuracy(best_accuracy_);
  if (best_loss_) kept.set_best_loss(*best_loss_);
  kept.set_best_step(best_step_);
  kept.set_evaluation_seconds(evaluation_seconds_);
  kept.set_elapsed_seconds(Elapsed());
  kept.set_stop_reason(stop_reason_);
  return kept;
}

void Progress::Restore(const checkpoint::Progress& kept) {
  total_.Restore(kept.total());
  steps_before_ = total_.steps;
  since_log_.Restore(kept.since_log());
  last_log_.Restore(kept.last_log());
  learning_rate_ = kept.learning_rate();
  if (kept.has_last_evaluation()) {
    const EvaluationResult last = Restored(kept.last_evaluation());
    (last.set == wire::VALIDATION ? validated_ : tested_) = last;
  }
  if (kept.has_test()) tested_ = Restored(kept.test());
  best_accuracy_ = kept.best_accuracy();
  if (kept.has_best_loss()) best_loss_ = kept.best_loss();
  best_step_ = kept.best_step();
  evaluation_seconds_ = kept.evaluation_seconds();
  seconds_before_ = kept.elapsed_seconds();
  stop_reason_ = kept.stop_reason();
}

}  // namespace muster
