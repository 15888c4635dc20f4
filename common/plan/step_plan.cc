#include "common/plan/step_plan.h"

#include <algorithm>

namespace muster {

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
