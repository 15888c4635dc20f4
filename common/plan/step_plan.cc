#include "common/plan/step_plan.h"

#include <algorithm>

namespace muster {

bool StepPlan::IsSane() const {
  const bool in_range = 0 < train_samples && train_samples <= kMostSamples && 0 < global_batch &&
                        global_batch <= kMostSamples && 0 < slices && slices <= kMostSlices &&
                        total_steps >= 0;
  constexpr int64_t kMostCounted = int64_t{1} << 62;
  return in_range && total_steps / StepsPerEpoch() < kMostCounted / train_samples;
}

Batch StepPlan::At(int64_t step) const {
  const int64_t per_epoch = StepsPerEpoch();
  Batch batch;
  batch.step = step;
  batch.epoch = step / per_epoch;
  batch.first = (step % per_epoch) * global_batch;
  batch.samples = std::min(global_batch, train_samples - batch.first);
  batch.samples_before = batch.epoch * train_samples + batch.first;
  return batch;
}

Range StepPlan::Slice(const Batch& batch, int64_t slice) const {
  const Range part = EvenPart(batch.samples, slices, slice);
  return {batch.first + part.begin, batch.first + part.end};
}

}  // namespace muster
