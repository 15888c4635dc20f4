// Assigns samples to steps. The assignment depends only on the data set's size and the config, so
// that server, prefetch threads and restarted workers agree without communication.
#pragma once

#include <cstdint>

#include "common/plan/slices.h"

namespace muster {

// One global batch: the positions [first, first + samples) in the shuffled order of `epoch`.
struct Batch {
  int64_t step = 0;   // counted from 0
  int64_t epoch = 0;  // counted from 0
  int64_t first = 0;
  int64_t samples = 0;
  int64_t samples_before = 0;  // samples of all earlier steps
};

struct StepPlan {
  int64_t train_samples = 0;  // size of the training set
  int64_t global_batch = 0;
  int64_t total_steps = 0;
  int64_t slices = 1;
  bool drop_last = false;  // leaves out the last batch of an epoch if it is smaller

  // The number of epochs of an open run: the program ends it (muster_set_run).
  static constexpr int64_t kOpenEpochs = 1'000'000;

  static constexpr int64_t kMostSamples = int64_t{1} << 33;  // of a data set
  static constexpr int64_t kMostSlices = 65536;

  // Whether the values are valid and the samples of all steps can be counted. Check this before
  // using a plan from another process.
  bool IsSane() const;
  // Every epoch visits each sample at most once. Its last batch has the remaining samples; with
  // drop_last they are left out. At least 1 for any training set, also in a plan that is not sane.
  int64_t StepsPerEpoch() const;
  bool IsOpen() const { return total_steps == kOpenEpochs * StepsPerEpoch(); }
  // The samples that an epoch visits.
  int64_t SamplesPerEpoch() const;
  // How many epochs the steps with these samples are. One that leaves out samples is whole, too.
  double EpochsOf(int64_t samples) const;
  Batch At(int64_t step) const;
  // Returns the positions in the epoch's order that belong to slice `slice` of this batch. May be
  // empty.
  Range Slice(const Batch& batch, int64_t slice) const;
};

}  // namespace muster
