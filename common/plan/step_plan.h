// Which samples belong to which step: a pure function of the dataset's size and the config, so
// that server, prefetch threads and a restarted worker agree without talking.
#pragma once

#include <cstdint>

#include "common/plan/slices.h"

namespace muster {

// One global batch: `samples` places [first, first + samples) of the shuffled order of `epoch`.
struct Batch {
  int64_t step = 0;   // counted from 0
  int64_t epoch = 0;  // counted from 0
  int64_t first = 0;
  int64_t samples = 0;
  int64_t samples_before = 0;  // trained on in all earlier steps
};

struct StepPlan {
  int64_t train_samples = 0;  // size of the training set
  int64_t global_batch = 0;
  int64_t total_steps = 0;
  int64_t slices = 1;

  static constexpr int64_t kMostSamples = int64_t{1} << 33;  // of a set
  static constexpr int64_t kMostSlices = 65536;

  // Whether there is something to do, and all samples of all steps can be counted. A plan that
  // somebody else has made is asked before anything else.
  bool IsSane() const;
  // Every epoch visits each sample once; its last batch holds what is left.
  int64_t StepsPerEpoch() const { return (train_samples + global_batch - 1) / global_batch; }
  Batch At(int64_t step) const;
  // Places of the epoch's order that slice `slice` of this batch holds; may be empty.
  Range Slice(const Batch& batch, int64_t slice) const;
};

}  // namespace muster
