// The evaluations of a run: when they are due, on which set, their assignment and results.
// Evaluations during the run select the best weights and use the validation set, if there is one.
// In that case, the test set is evaluated only once, after the last step.
//
// Owner: the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "proto/wire.pb.h"
#include "ps/evaluate/evaluation.h"
#include "ps/tensorboard/sample_image.h"

namespace muster {

class Evaluator {
 public:
  using Time = Evaluation::Time;

  // `classes`: number of logits. `images`: number of samples to show to users per evaluation.
  // `class_names` may be empty.
  Evaluator(const config::Evaluation& settings, int64_t classes, uint32_t images,
            std::vector<std::string> class_names = {})
      : settings_(settings),
        classes_(classes),
        images_(images),
        class_names_(std::move(class_names)) {}

  // Call before the run begins. The workers that joined report the sizes of the sets.
  void Plan(const StepPlan& plan, int64_t validation_samples, int64_t test_samples);

  // The set that is evaluated during the run.
  wire::EvaluationSet chooses() const {
    return validation_samples_ > 0 ? wire::VALIDATION : wire::TEST;
  }
  // Whether the run ends with an evaluation of the test set, which affects no decision.
  bool TestsAtEnd() const {
    return validation_samples_ > 0 && test_samples_ > 0 && !settings_.skip_final();
  }
  bool IsDueAfter(int64_t step) const;
  // Whether an evaluation is due after this step, however long the run is.
  bool IsRegularAfter(int64_t step) const;
  // Whether the evaluation of W(version) uses its moving average.
  bool AverageIsDue(int64_t version) const {
    return settings_.use_ema() && IsDueAfter(version - 1);
  }

  // Starts the evaluation of W(version) by these ranks, ascending, and returns the order for each.
  // `times`: relative time of each rank for equal work; empty: all equal.
  std::vector<wire::Evaluate> Begin(int64_t version, wire::EvaluationSet set,
                                    std::vector<uint32_t> ranks, Time now,
                                    const std::vector<double>& times = {});
  bool running() const { return evaluation_.has_value(); }
  // Whether W(version), the newest complete version, or its average is being evaluated.
  bool Evaluates(int64_t version) const { return evaluation_ && evaluation_->version() <= version; }
  // Requires running().
  const Evaluation& current() const { return *evaluation_; }
  void Extend(std::chrono::steady_clock::duration suspension) {
    if (evaluation_) evaluation_->Extend(suspension);
  }

  // Unassigns the blocks of a rank and returns their number.
  int64_t Drop(uint32_t rank) { return evaluation_ ? evaluation_->Drop(rank) : 0; }
  bool Owes(uint32_t rank) const { return evaluation_ && evaluation_->Owes(rank); }
  // Assigns unassigned blocks to these ranks and returns the orders. `how` decides for each block.
  // kAlone: only to a rank that owes nothing, one block per order, so that the loss of the worker
  // identifies the block. kLater: leaves it unassigned.
  enum class Give { kWithOthers, kAlone, kLater };
  std::vector<std::pair<uint32_t, wire::Evaluate>> GiveUnassigned(
      const std::vector<uint32_t>& ranks, const std::function<Give(int64_t block)>& how, Time now);

  // Returns false if the block is invalid (Evaluation::Add) or no evaluation is running.
  bool Add(uint32_t rank, const wire::EvaluatedBlock& block, Time now);
  // The sample images of the last evaluation, in the order of the set.
  std::vector<SampleImage> TakeImages();
  // Ends a complete evaluation and returns its result.
  EvaluationResult Finish();
  // The confusion matrix of the last evaluation as CSV, or "" if not requested, or if the loss is
  // not finite.
  const std::string& matrix_csv() const { return matrix_csv_; }

 private:
  wire::Evaluate OrderOf(const Range& blocks) const;
  int64_t SamplesOf(wire::EvaluationSet set) const {
    return set == wire::VALIDATION ? validation_samples_ : test_samples_;
  }

  const config::Evaluation settings_;
  const int64_t classes_;
  const uint32_t images_;
  const std::vector<std::string> class_names_;
  std::vector<SampleImage> seen_images_;
  StepPlan plan_;
  int64_t validation_samples_ = 0, test_samples_ = 0;
  std::optional<Evaluation> evaluation_;
  std::string matrix_csv_;
};

}  // namespace muster
