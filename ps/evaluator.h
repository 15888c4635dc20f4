// The evaluations of a run: when one is due, on which set, who evaluates what, the result. Those
// during a run choose the best weights: they are of the validation set, if there is one. Then the
// test set is evaluated once, after the last step.
//
// Owner: the coordinator.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "proto/wire.pb.h"
#include "ps/evaluation.h"
#include "ps/tensorboard/sample_image.h"

namespace muster {

class Evaluator {
 public:
  // `run_dir` may be empty: no files. `classes`: logits of the network. `images`: samples that
  // are wanted of each evaluation, for people to look at. `class_names` may be empty.
  Evaluator(const config::Evaluation& settings, std::string run_dir, int64_t classes,
            uint32_t images, std::vector<std::string> class_names = {})
      : settings_(settings),
        run_dir_(std::move(run_dir)),
        classes_(classes),
        images_(images),
        class_names_(std::move(class_names)) {}

  // What is known when all workers have joined.
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
                                    std::vector<uint32_t> ranks,
                                    const std::vector<double>& times = {});
  bool running() const { return evaluation_.has_value(); }
  // With running() only.
  const Evaluation& current() const { return *evaluation_; }
  void Forgive(std::chrono::steady_clock::duration suspension) {
    if (evaluation_) evaluation_->Forgive(suspension);
  }

  // The rank evaluates nothing any more. How many blocks others are to evaluate instead.
  int64_t Drop(uint32_t rank) { return evaluation_ ? evaluation_->Drop(rank) : 0; }
  // Others evaluate the blocks of this rank, too; its own come in vain, or first.
  void MarkLate(uint32_t rank) { evaluation_->MarkLate(rank); }
  void WaitForAfterAll(uint32_t rank) { evaluation_->WaitForAfterAll(rank); }
  // What nobody evaluates, spread over these ranks: the orders, and for whom. kAlone: to who has
  // brought all that it had, and one at a time, so that who is lost then was at that one.
  enum class Give { kWithOthers, kAlone, kLater };
  std::vector<std::pair<uint32_t, wire::Evaluate>> GiveOrphans(
      const std::vector<uint32_t>& ranks, const std::function<Give(int64_t block)>& how);

  // False if the block is not one of those that this rank was given, or came from it already. True
  // also of one that is too late; then perhaps none is running.
  bool Add(uint32_t rank, const wire::EvaluatedBlock& block);
  // What has come of the images that were wanted of the last evaluation.
  std::vector<SampleImage> TakeImages() { return std::exchange(seen_images_, {}); }
  // Of a complete one; then none is running. Writes confusion_matrix.csv if it is wanted.
  EvaluationResult Finish();
  // Why that could not be written the last time; "" if it could.
  const std::string& matrix_trouble() const { return matrix_trouble_; }

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  wire::Evaluate OrderOf(const Range& blocks) const;
  int64_t SamplesOf(wire::EvaluationSet set) const {
    return set == wire::VALIDATION ? validation_samples_ : test_samples_;
  }

  const config::Evaluation settings_;
  const std::string run_dir_;
  const int64_t classes_;
  const uint32_t images_;
  const std::vector<std::string> class_names_;
  std::vector<SampleImage> seen_images_;
  StepPlan plan_;
  int64_t validation_samples_ = 0, test_samples_ = 0;
  std::optional<Evaluation> evaluation_;
  // Of the last evaluation: whose blocks may still come.
  int64_t last_version_ = -1;
  wire::EvaluationSet last_set_ = wire::TEST;
  std::set<uint32_t> were_late_;
  std::string matrix_trouble_;
};

}  // namespace muster
