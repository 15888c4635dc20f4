// Learning-rate schedules, measured in samples. See LearningRate in proto/config.proto.
#pragma once

#include <cstdint>

#include "proto/config.pb.h"

namespace muster {

// Immutable. A pure function of the number of samples seen and, for PLATEAU, of the number of
// reductions, so that a run can resume anywhere.
class LearningRateSchedule {
 public:
  LearningRateSchedule() = default;
  // `run_samples`: samples of the whole run, the default end of a schedule.
  LearningRateSchedule(const config::LearningRate& settings, uint32_t workers, int64_t run_samples);

  // The base rate, scaled by the number of workers.
  double base() const { return base_; }
  // The rate of the update after `samples` samples. Past its end, a schedule keeps its last value.
  // `reductions`: number of times that the rate has been reduced; used only by PLATEAU.
  double At(int64_t samples, int64_t reductions = 0) const;

 private:
  double Progress(int64_t samples) const;  // p in config.proto
  double AfterWarmup(int64_t samples) const;
  double Reduced(int64_t reductions) const;
  double OneCycle(int64_t samples) const;

  config::LearningRate settings_;
  double base_ = 0;
  int64_t total_ = 0;
};

}  // namespace muster
