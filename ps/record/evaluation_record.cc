#include "ps/record/evaluation_record.h"

#include "common/checkpoint/early_stop.h"
#include "common/plan/metrics.h"
#include "ps/record/scalar_fields.h"

namespace muster {
namespace {

checkpoint::Evaluated Kept(const EvaluationResult& result) {
  checkpoint::Evaluated kept;
  kept.set_step(result.version);
  kept.set_accuracy(result.accuracy ? *result.accuracy : -result.loss);
  kept.set_by_loss(!result.accuracy);
  kept.set_loss(result.loss);
  kept.set_validation(result.set == wire::VALIDATION);
  *kept.mutable_scalars() = KeptScalars(result.scalars);
  return kept;
}

EvaluationResult Restored(const checkpoint::Evaluated& kept) {
  EvaluationResult result{.set = kept.validation() ? wire::VALIDATION : wire::TEST,
                          .version = kept.step(),
                          .loss = kept.loss()};
  if (!IsByLoss(kept)) result.accuracy = kept.accuracy();
  result.scalars = RestoredScalars(kept.scalars());
  if (kept.has_top5_accuracy()) result.scalars[kMetrics[kTop5].name] = {kept.top5_accuracy(), 1};
  return result;
}

}  // namespace

events::Scores ScoresOf(const EvaluationResult& result) {
  events::Scores scores;
  if (result.accuracy) scores.set_accuracy(*result.accuracy);
  scores.set_loss(result.loss);
  *scores.mutable_scalars() = MeansOf(result.scalars);
  return scores;
}

void EvaluationRecord::Add(const EvaluationResult& result) {
  std::optional<EvaluationResult>& last = result.set == wire::VALIDATION ? validated_ : tested_;
  const bool chooses = result.set == wire::VALIDATION || !validated_;
  if (chooses && result.finite() && (best_.step == 0 || result.score() > best_.score)) {
    best_ = {.score = result.score(), .loss = result.loss, .step = result.version};
  }
  last = result;
}

void EvaluationRecord::StepEnded() {
  if (validated_) tested_.reset();  // the run was extended past its final test
}

void EvaluationRecord::Keep(checkpoint::Progress& kept) const {
  if (last()) *kept.mutable_last_evaluation() = Kept(*last());
  if (validated_ && tested_) *kept.mutable_test() = Kept(*tested_);
  kept.set_best_accuracy(best_.score);
  if (best_.loss) kept.set_best_loss(*best_.loss);
  kept.set_best_step(best_.step);
}

void EvaluationRecord::Restore(const checkpoint::Progress& kept) {
  if (kept.has_last_evaluation()) {
    const EvaluationResult last = Restored(kept.last_evaluation());
    (last.set == wire::VALIDATION ? validated_ : tested_) = last;
  }
  if (kept.has_test()) tested_ = Restored(kept.test());
  best_.score = kept.best_accuracy();
  if (kept.has_best_loss()) best_.loss = kept.best_loss();
  best_.step = kept.best_step();
}

void EvaluationRecord::Put(events::Summary& summary) const {
  if (validated_) *summary.mutable_validation() = ScoresOf(*validated_);
  if (tested_) *summary.mutable_test() = ScoresOf(*tested_);
  if (best_.step == 0) return;
  if (last()->accuracy) summary.set_best_accuracy(best_.score);
  summary.set_best_step(best_.step);
}

}  // namespace muster
