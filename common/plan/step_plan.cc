#include "common/plan/step_plan.h"

#include <algorithm>

namespace muster {

bool StepPlan::IsSane() const {
  const bool in_range = 0 < train_samples && train_samples <= kMostSamples && 0 < global_batch &&
                        global_batch <= kMostSamples && 0 < slices && slices <= kMostSlices &&
                        total_steps >= 0 && (!drop_last || global_batch <= train_samples);
  constexpr int64_t kMostCounted = int64_t{1} << 62;
  return in_range && total_steps / StepsPerEpoch() < kMostCounted / train_samples;
}

int64_t StepPlan::StepsPerEpoch() const {
  if (global_batch <= 0) return 1;  // nothing is planned yet
  if (drop_last) return std::max<int64_t>(train_samples / global_batch, 1);
  return (train_samples + global_batch - 1) / global_batch;
}

int64_t StepPlan::SamplesPerEpoch() const {
  return drop_last ? std::min(StepsPerEpoch() * global_batch, train_samples) : train_samples;
}

double StepPlan::EpochsOf(int64_t samples) const {
  if (train_samples <= 0) return 0;
  return static_cast<double>(samples) / static_cast<double>(SamplesPerEpoch());
}

Batch StepPlan::At(int64_t step) const {
  const int64_t per_epoch = StepsPerEpoch();
  Batch batch;
  batch.step = step;
  batch.epoch = step / per_epoch;
  batch.first = (step % per_epoch) * global_batch;
  batch.samples = std::min(global_batch, train_samples - batch.first);
  batch.samples_before = batch.epoch * SamplesPerEpoch() + batch.first;
  return batch;
}

Range StepPlan::Slice(const Batch& batch, int64_t slice) const {
  const Range part = EvenPart(batch.samples, slices, slice);
  return {batch.first + part.begin, batch.first + part.end};
}

}  // namespace muster
