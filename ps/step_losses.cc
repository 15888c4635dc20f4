#include "ps/step_losses.h"

namespace muster {

void StepLosses::Begin(const StepPlan& plan, const Batch& batch) {
  batch_ = batch;
  count_ = 0;
  results_.assign(static_cast<size_t>(plan.slices), {});
  for (int64_t s = 0; s < plan.slices; ++s) {
    results_[static_cast<size_t>(s)].samples = plan.Slice(batch, s).size();
  }
}

bool StepLosses::Add(int64_t slice, int64_t samples, double loss, int64_t correct) {
  if (slice < 0 || slice >= static_cast<int64_t>(results_.size())) return false;
  Result& result = results_[static_cast<size_t>(slice)];
  if (result.present || result.samples != samples) return false;
  result = {true, samples, loss, correct};
  ++count_;
  return true;
}

double StepLosses::Loss() const {
  double sum = 0;
  for (const Result& result : results_) sum += result.loss;
  return sum;
}

int64_t StepLosses::Correct() const {
  int64_t sum = 0;
  for (const Result& result : results_) sum += result.correct;
  return sum;
}

}  // namespace muster
