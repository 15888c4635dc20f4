#include "ps/record/progress.h"
#include "ps/record/scalar_fields.h"

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
  *kept.mutable_scalars() = KeptScalars(scalars);
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
  scalars = RestoredScalars(kept.scalars());
}

checkpoint::Progress Progress::Keep() const {
  checkpoint::Progress kept;
  *kept.mutable_total() = total_.Keep();
  *kept.mutable_since_log() = since_log_.Keep();
  *kept.mutable_last_log() = last_log_.Keep();
  *kept.mutable_since_epoch() = since_epoch_.Keep();
  kept.set_learning_rate(learning_rate_);
  evaluations_.Keep(kept);
  kept.set_evaluation_seconds(evaluation_seconds_);
  kept.set_elapsed_seconds(Elapsed());
  kept.set_stop_reason(stop_reason_);
  return kept;
}

void Progress::Restore(const checkpoint::Progress& kept) {
  total_.Restore(kept.total());
  earlier_ = {.steps = total_.steps, .seconds = kept.elapsed_seconds()};
  since_log_.Restore(kept.since_log());
  last_log_.Restore(kept.last_log());
  since_epoch_.Restore(kept.since_epoch());
  learning_rate_ = kept.learning_rate();
  evaluations_.Restore(kept);
  evaluation_seconds_ = kept.evaluation_seconds();
  stop_reason_ = kept.stop_reason();
}

}  // namespace muster
