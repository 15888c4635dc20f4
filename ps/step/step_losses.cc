#include "ps/step/step_losses.h"

#include <algorithm>
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
                                  int64_t correct, ScalarSums scalars, OfProgram program) {
  if (slice < 0 || slice >= static_cast<int64_t>(results_.size())) return Added::kUnexpected;
  Result& result = results_[static_cast<size_t>(slice)];
  if (result.samples != samples || correct < 0 || correct > samples) return Added::kUnexpected;
  if (result.present) {
    const bool same = std::bit_cast<uint64_t>(result.loss) == std::bit_cast<uint64_t>(loss) &&
                      result.weight == program.weight && result.correct == correct &&
                      HaveSameBits(result.scalars, scalars);
    return same ? Added::kSame : Added::kDiffers;
  }
  const std::optional<double>& rate = program.learning_rate;
  if (rate && learning_rate_.value_or(*rate) != *rate) return Added::kOtherRate;
  const bool other_weight = std::ranges::any_of(results_, [&](const Result& other) {
    return other.present && other.samples > 0 && samples > 0 &&
           other.weight.has_value() != program.weight.has_value();
  });
  if (other_weight) return Added::kOtherWeight;
  if (rate) learning_rate_ = rate;
  result = {true, rank, samples, loss, correct, std::move(scalars), program.weight};
  ++count_;
  return Added::kNew;
}

std::optional<double> StepLosses::Weight() const {
  std::optional<double> sum;
  for (const Result& result : results_) {
    if (result.weight) sum = sum.value_or(0) + *result.weight;
  }
  return sum;
}

double StepLosses::Loss() const {
  double sum = 0;
  for (const Result& result : results_) sum += result.loss;
  const std::optional<double> weight = Weight();
  if (!weight) return sum;
  return *weight == 0 ? 0 : sum / *weight * static_cast<double>(batch_.samples);
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
