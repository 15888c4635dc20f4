// The losses of one step. No weight is updated before all slices have reported a finite loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/plan/scalar_sums.h"
#include "common/plan/step_plan.h"

namespace muster {

class StepLosses {
 public:
  void Begin(const StepPlan& plan, const Batch& batch);

  // kUnexpected: the slice is unknown or has a different number of samples. kSame, kDiffers: the
  // slice was already reported with a bitwise equal or a different result.
  // kOtherRate: another slice was reported with another learning rate. kOtherWeight: one of both
  // has a weight.
  enum class Added { kNew, kSame, kDiffers, kOtherRate, kOtherWeight, kUnexpected };
  // What a program reports, too: the step's rate, and what the slice counts.
  struct OfProgram {
    std::optional<double> learning_rate, weight;
  };
  Added Add(uint32_t rank, int64_t slice, int64_t samples, double loss, int64_t correct,
            ScalarSums scalars = {}, OfProgram program = {});
  bool Complete() const { return count_ == results_.size(); }
  bool Has(int64_t slice) const { return results_[static_cast<size_t>(slice)].present; }
  // The rank that reported the loss.
  uint32_t RankOf(int64_t slice) const { return results_[static_cast<size_t>(slice)].rank; }
  double LossOf(int64_t slice) const { return results_[static_cast<size_t>(slice)].loss; }

  // The step's, if the workers' programs set it.
  std::optional<double> learning_rate() const { return learning_rate_; }
  // The sum of the slices' weights, if they have any: the gradient is divided by it.
  std::optional<double> Weight() const;

  const Batch& batch() const { return batch_; }
  // Sums over all samples of the step, added in slice order. With weights, the loss is their mean
  // times the samples.
  double Loss() const;
  int64_t Correct() const;
  ScalarSums Scalars() const;

 private:
  struct Result {
    bool present = false;
    uint32_t rank = 0;
    int64_t samples = 0;
    double loss = 0;
    int64_t correct = 0;
    ScalarSums scalars = {};
    std::optional<double> weight;
  };
  Batch batch_;
  std::vector<Result> results_;
  size_t count_ = 0;
  std::optional<double> learning_rate_;
};

}  // namespace muster
