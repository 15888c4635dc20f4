// Evaluations at the server: when one is due, its blocks, and its result.
#include <fmt/core.h>

#include "common/base/atomic_file.h"
#include "common/base/log.h"
#include "ps/server.h"

namespace muster {

bool Server::EvaluationIsDueAfter(int64_t step) const {
  if (roster_.test_samples() == 0) return false;
  const config::Evaluation& when = config_.evaluation();
  const int64_t done = step + 1;
  if (done == plan_.total_steps) return !when.skip_final();
  const int64_t per_epoch = plan_.StepsPerEpoch();
  if (when.every_steps() > 0 && done % when.every_steps() == 0) return true;
  return when.every_epochs() > 0 && done % (per_epoch * when.every_epochs()) == 0;
}

bool Server::AverageIsDue(int64_t version) const {
  return config_.evaluation().use_ema() && phase_ == Phase::kTraining &&
         EvaluationIsDueAfter(version - 1);
}

void Server::OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block) {
  if (!evaluation_ || !evaluation_->Add(rank, block)) {
    return Drop(roster_.Name(rank), fmt::format("an unexpected block {}", block.block()));
  }
  if (evaluation_->Complete()) return EndEvaluation();
  if (LiveLineIsDue()) {
    reporter_.Progress(progress_.EvaluatingLine(evaluation_->done(), evaluation_->blocks()));
  }
}

void Server::EndEvaluation() {
  const EvaluationResult result = evaluation_->Result();
  progress_.EndEvaluation(result);
  const auto line = progress_.EvaluationLine();
  reporter_.Metrics(line);
  reporter_.Evaluation(line);
  LogInfo("step {}: test accuracy {:.4f}, test loss {:.4f}", result.version, result.accuracy,
          result.loss);
  // Written anew at each one, so that it is the last one's however the run ends.
  if (evaluation_->confusion_matrix() != nullptr && !config_.run().dir().empty()) {
    WriteFileAtomically(config_.run().dir() + "/confusion_matrix.csv",
                        evaluation_->confusion_matrix()->Csv());
  }
  evaluation_.reset();
  step_deadline_began_ = Clock::now();
  if (phase_ == Phase::kStopping) {
    done_ = true;
  } else if (config_.evaluation().has_stop_at_accuracy()) {
    if (result.accuracy >= config_.evaluation().stop_at_accuracy()) return StopEarly(result);
    OrderStep(step_);  // it was held back
  }
}

// The run has reached what it was for. No worker has been told of a step after this evaluation.
void Server::StopEarly(const EvaluationResult& result) {
  const std::string reason =
      fmt::format("reached the test accuracy {:g} at step {}: evaluation.stop_at_accuracy is {:g}",
                  result.accuracy, result.version, config_.evaluation().stop_at_accuracy());
  LogInfo("{}", reason);
  progress_.StopEarly(reason);
  phase_ = Phase::kStopping;
  done_ = true;
}

}  // namespace muster
