// The evaluations of a run: when one is due, on which set, who evaluates what, the result. Those
// during a run choose the best weights: they are of the validation set, if there is one. Then the
// test set is evaluated once, after the last step.
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

  // `classes`: logits of the network. `images`: samples that are wanted of each evaluation, for
  // people to look at. `class_names` may be empty.
  Evaluator(const config::Evaluation& settings, int64_t classes, uint32_t images,
            std::vector<std::string> class_names = {})
      : settings_(settings),
        classes_(classes),
        images_(images),
        class_names_(std::move(class_names)) {}

  // Before the run begins: the sizes of the sets are known once workers have joined.
  void Plan(const StepPlan& plan, int64_t validation_samples, int64_t test_samples);

  // The set that is evaluated during the run.
  wire::EvaluationSet chooses() const {
    return validation_samples_ > 0 ? wire::VALIDATION : wire::TEST;
  }
  // Whether the run ends with an evaluation of the test set, which no decision follows from.
  bool TestsAtEnd() const {
    return validation_samples_ > 0 && test_samples_ > 0 && !settings_.skip_final();
  }
  bool IsDueAfter(int64_t step) const;
  // Whether it would be due there in a run of any length.
  bool IsRegularAfter(int64_t step) const;
  // Whether W(version) is to be evaluated by its moving average.
  bool AverageIsDue(int64_t version) const {
    return settings_.use_ema() && IsDueAfter(version - 1);
  }

  // Begins the evaluation of W(version) on a set by these ranks, ascending: the order for each.
  // `times`: what each takes for as much as any other; empty: they are equally fast.
  std::vector<wire::Evaluate> Begin(int64_t version, wire::EvaluationSet set,
                                    std::vector<uint32_t> ranks, Time now,
                                    const std::vector<double>& times = {});
  bool running() const { return evaluation_.has_value(); }
  // Whether W(version), the newest that is whole, is being evaluated, or its average.
  bool Evaluates(int64_t version) const { return evaluation_ && evaluation_->version() <= version; }
  // With running() only.
  const Evaluation& current() const { return *evaluation_; }
  void Extend(std::chrono::steady_clock::duration suspension) {
    if (evaluation_) evaluation_->Extend(suspension);
  }

  // The blocks of this rank become unassigned. How many there are.
  int64_t Drop(uint32_t rank) { return evaluation_ ? evaluation_->Drop(rank) : 0; }
  bool Owes(uint32_t rank) const { return evaluation_ && evaluation_->Owes(rank); }
  // Gives unassigned blocks to these ranks: the orders, and for whom. kAlone: to a rank that owes
  // nothing, one at a time, so that a worker that is lost then was at that block.
  enum class Give { kWithOthers, kAlone, kLater };
  std::vector<std::pair<uint32_t, wire::Evaluate>> GiveUnassigned(
      const std::vector<uint32_t>& ranks, const std::function<Give(int64_t block)>& how, Time now);

  // False: the block does not fit (Evaluation::Add), or no evaluation is running.
  bool Add(uint32_t rank, const wire::EvaluatedBlock& block, Time now);
  // What has come of the images that were wanted of the last evaluation.
  std::vector<SampleImage> TakeImages() { return std::exchange(seen_images_, {}); }
  // The result of a complete evaluation; then none is running.
  EvaluationResult Finish();
  // The confusion matrix of the last one, as comma-separated values; "" if none is wanted.
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
