// Learning-rate schedules, counted in samples. See LearningRate in proto/config.proto.
#pragma once

#include <cstdint>

#include "proto/config.pb.h"

namespace muster {

// Immutable: a pure function of the number of samples seen, and for PLATEAU of how often
// evaluations have lowered the rate, so that a run can go on anywhere.
class LearningRateSchedule {
 public:
  LearningRateSchedule() = default;
  // `run_samples`: how many samples the whole run trains on, the end of schedules that name none.
  LearningRateSchedule(const config::LearningRate& settings, uint32_t workers, int64_t run_samples);

  // The base rate, scaled with the number of workers.
  double base() const { return base_; }
  // The rate of an update before which `samples` samples have been seen. Never throws: a schedule
  // that has ended stays where it ended, and one that is all warm-up ends after it.
  // `reductions`: how often the rate has been lowered; only PLATEAU looks at it.
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
