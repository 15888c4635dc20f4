// What follows from an evaluation.
#include <fmt/core.h>

#include "common/base/log.h"
#include "common/checkpoint/early_stop.h"
#include "ps/coordinator.h"

namespace muster {

std::string Coordinator::OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block) {
  const auto is_late = [&] {
    return evaluator_.running() && evaluator_.current().late().contains(rank);
  };
  const auto busy = [&] {
    return evaluator_.running() ? evaluator_.current().MissingRanks().size() : 0;
  };
  const bool was_late = is_late();
  const size_t were_busy = busy();
  if (!evaluator_.Add(rank, block)) return fmt::format("an unexpected block {}", block.block());
  if (!evaluator_.running()) return "";
  // Somebody has nothing else to do, and may go or help; or was late, and can help again.
  if (busy() < were_busy || (was_late && !is_late())) repair_due_ = true;
  const Evaluation& evaluation = evaluator_.current();
  if (evaluation.Complete()) {
    EndEvaluation();
  } else if (LiveLineIsDue()) {
    reporter_.Progress(progress_.EvaluatingLine(evaluation.done(), evaluation.blocks()));
  }
  return "";
}

void Coordinator::EndEvaluation() {
  const EvaluationResult result = evaluator_.Finish();
  const bool chooses = result.set == evaluator_.chooses();
  progress_.EndEvaluation(result);
  auto line = progress_.EvaluationLine(result);
  if (chooses) line.set_decision(Decide(result));
  reporter_.Metrics(line);
  reporter_.Evaluation(line);
  board_.Evaluation(line, evaluator_.TakeImages());
  const char* const set = SetName(result.set);
  LogInfo(
      "step {}: {}{} loss {:.4f}", result.version,
      IsAccuracy(result.accuracy) ? fmt::format("{} accuracy {:.4f}, ", set, result.accuracy) : "",
      set, result.loss);
  if (!line.decision().empty()) LogInfo("{}", line.decision());
  if (chooses) saver_.OnEvaluated(step_);
  deadlines_.Restart();
  if (chooses) checkpoints_.OnEvaluated(result.version, result.accuracy);
  if (phase_ == Phase::kFinishing || !progress_.stop_reason().empty()) {
    Finish();  // early: no worker has been told of a step after this evaluation
  } else if (decisions_.any()) {
    OrderNow();  // it was held back
  }
}

std::string Coordinator::Decide(const EvaluationResult& result) {
  const int64_t before = decisions_.reductions();
  if (!evaluator_.IsRegularAfter(result.version - 1)) return "";
  decisions_.Add(result);
  if (phase_ == Phase::kFinishing) return "";
  if (const std::string reason = decisions_.StopReason(); !reason.empty()) {
    progress_.StopEarly(reason);
    return "stopped early: " + reason;
  }
  const int64_t samples = plan_.At(result.version).samples_before;
  const double was = schedule_.At(samples, before);
  const double is = schedule_.At(samples, decisions_.reductions());
  if (was == is) return "";
  return fmt::format("the learning rate falls from {:g} to {:g}: {}", was, is,
                     decisions_.ReductionReason());
}

// Whether there is nothing left to do. A longer run, or one with more patience, may be over or not.
bool Coordinator::IsOver() {
  progress_.StopEarly(StopReasonAt(config_.evaluation(), *resumed_, plan_.total_steps));
  if (progress_.stop_reason().empty()) return false;
  LogInfo("the run is over: {}; it goes on with {}", progress_.stop_reason(),
          HowToGoOn(config_.evaluation(), resumed_->decisions()));
  return true;
}

}  // namespace muster
