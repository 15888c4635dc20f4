// The losses of one step: nothing is updated before all slices have reported a finite one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/plan/assignment.h"
#include "common/plan/step_plan.h"

namespace muster {

class StepLosses {
 public:
  void Begin(const StepPlan& plan, const Batch& batch);

  // False if the slice is unknown, reported already, or has another number of samples.
  bool Add(int64_t slice, int64_t samples, double loss, int64_t correct);
  // The ranks that have not reported all of their slices.
  std::vector<uint32_t> MissingRanks(const Assignment& assignment) const;
  bool Complete() const { return count_ == results_.size(); }

  const Batch& batch() const { return batch_; }
  // Sums over all samples of the step, added in slice order.
  double Loss() const;
  int64_t Correct() const;

 private:
  struct Result {
    bool present = false;
    int64_t samples = 0;
    double loss = 0;
    int64_t correct = 0;
  };
  Batch batch_;
  std::vector<Result> results_;
  size_t count_ = 0;
};

}  // namespace muster
