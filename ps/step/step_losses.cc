#include "ps/step/step_losses.h"

#include <bit>
#include <utility>

namespace muster {

void StepLosses::Begin(const StepPlan& plan, const Batch& batch) {
  batch_ = batch;
  count_ = 0;
  learning_rate_.reset();
  results_.assign(static_cast<size_t>(plan.slices), {});
  for (int64_t s = 0; s < plan.slices; ++s) {
    results_[static_cast<size_t>(s)].samples = plan.Slice(batch, s).size();
  }
}

StepLosses::Added StepLosses::Add(uint32_t rank, int64_t slice, int64_t samples, double loss,
                                  int64_t correct, ScalarSums scalars,
                                  std::optional<double> learning_rate) {
  if (slice < 0 || slice >= static_cast<int64_t>(results_.size())) return Added::kUnexpected;
  Result& result = results_[static_cast<size_t>(slice)];
  if (result.samples != samples || correct < 0 || correct > samples) return Added::kUnexpected;
  if (result.present) {
    const bool same = std::bit_cast<uint64_t>(result.loss) == std::bit_cast<uint64_t>(loss) &&
                      result.correct == correct && HaveSameBits(result.scalars, scalars);
    return same ? Added::kSame : Added::kDiffers;
  }
  if (learning_rate && learning_rate_.value_or(*learning_rate) != *learning_rate)
    return Added::kOtherRate;
  if (learning_rate) learning_rate_ = learning_rate;
  result = {true, rank, samples, loss, correct, std::move(scalars)};
  ++count_;
  return Added::kNew;
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

ScalarSums StepLosses::Scalars() const {
  ScalarSums sums;
  for (const Result& result : results_) AddScalarSums(result.scalars, sums);
  return sums;
}

}  // namespace muster
