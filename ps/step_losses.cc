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

std::vector<uint32_t> StepLosses::MissingRanks(const Assignment& assignment) const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < assignment.ranks(); ++rank) {
    for (size_t slice = 0; slice < results_.size(); ++slice) {
      if (results_[slice].present || !assignment.Holds(rank, static_cast<int64_t>(slice))) continue;
      missing.push_back(rank);
      break;
    }
  }
  return missing;
}

}  // namespace muster
