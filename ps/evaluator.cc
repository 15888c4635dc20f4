#include "ps/evaluator.h"

#include <fmt/core.h>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace muster {

void Evaluator::Plan(const StepPlan& plan, int64_t test_samples) {
  plan_ = plan;
  test_samples_ = test_samples;
}

bool Evaluator::IsDueAfter(int64_t step) const {
  if (test_samples_ == 0) return false;
  const int64_t done = step + 1;
  if (done == plan_.total_steps) return !settings_.skip_final();
  const int64_t per_epoch = plan_.StepsPerEpoch();
  if (settings_.every_steps() > 0 && done % settings_.every_steps() == 0) return true;
  return settings_.every_epochs() > 0 && done % (per_epoch * settings_.every_epochs()) == 0;
}

std::vector<wire::Evaluate> Evaluator::Begin(int64_t version, std::vector<uint32_t> ranks) {
  evaluation_.emplace(version, test_samples_, settings_.batch(), std::move(ranks), classes_,
                      settings_.confusion_matrix());
  std::vector<wire::Evaluate> orders;
  for (const uint32_t rank : evaluation_->ranks()) {
    const Range blocks = evaluation_->BlocksOf(rank);
    wire::Evaluate& order = orders.emplace_back();
    order.set_version(version);
    order.set_block_size(settings_.batch());
    order.set_block_begin(static_cast<uint32_t>(blocks.begin));
    order.set_block_end(static_cast<uint32_t>(blocks.end));
    order.set_average(settings_.use_ema());
    order.set_predictions(settings_.confusion_matrix());
  }
  return orders;
}

EvaluationResult Evaluator::Finish() {
  const EvaluationResult result = evaluation_->Result();
  // Written anew at each one, so that it is the last one's however the run ends.
  if (evaluation_->confusion_matrix() != nullptr && !run_dir_.empty()) {
    try {
      WriteFileAtomically(run_dir_ + "/confusion_matrix.csv",
                          evaluation_->confusion_matrix()->Csv());
      matrix_trouble_.clear();
    } catch (const Error& error) {  // a full disk ends no training
      matrix_trouble_ = error.what();
      LogWarning("{}", matrix_trouble_);
    }
  }
  evaluation_.reset();
  return result;
}

std::string Evaluator::StopReason(const EvaluationResult& result) const {
  if (!decides() || result.accuracy < settings_.stop_at_accuracy()) return "";
  return fmt::format(
      "reached the test accuracy {:g} at step {}: evaluation.stop_at_accuracy is {:g}",
      result.accuracy, result.version, settings_.stop_at_accuracy());
}

}  // namespace muster
