#include "ps/evaluate/decisions.h"

#include "common/checkpoint/early_stop.h"

namespace muster {
namespace {

// As in PyTorch's ReduceLROnPlateau and Keras's EarlyStopping, an improvement of min_delta or less
// does not replace the best value, so small improvements add up.
void Count(const EvaluationResult& result, double min_delta,
           checkpoint::Decisions::Waited& waited) {
  const bool first = waited.best_step() == 0;
  if (result.finite() && (first || result.score() > waited.best() + min_delta)) {
    waited.set_best(result.score());
    waited.set_best_step(result.version);
    waited.set_evaluations(0);
  } else {
    waited.set_evaluations(waited.evaluations() + 1);
  }
}

}  // namespace

bool Decisions::any() const {
  return evaluation_.has_stop_at_accuracy() || evaluation_.patience() > 0 ||
         rate_.type() == config::LearningRate::PLATEAU;
}

void Decisions::Add(const EvaluationResult& result) {
  state_.set_step(result.version);
  state_.set_validation(result.set == wire::VALIDATION);
  state_.set_accuracy(result.score());
  state_.set_by_loss(!result.accuracy);
  // Counted even without a limit, because a resumed run may set one.
  Count(result, evaluation_.min_delta(), *state_.mutable_stop());
  if (rate_.type() != config::LearningRate::PLATEAU) return;
  checkpoint::Decisions::Waited& waited = *state_.mutable_plateau();
  Count(result, rate_.plateau_min_delta(), waited);
  if (waited.evaluations() < rate_.plateau_patience()) return;
  waited.set_evaluations(0);
  state_.set_reductions(state_.reductions() + 1);
}

std::string Decisions::StopReason() const { return muster::StopReason(evaluation_, state_); }

std::string Decisions::ReductionReason() const {
  return NoBetterText(state_, state_.plateau(), rate_.plateau_patience(),
                      rate_.plateau_min_delta());
}

}  // namespace muster
