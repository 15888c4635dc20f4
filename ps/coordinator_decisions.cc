// What follows from an evaluation.
#include <fmt/core.h>

#include "common/base/log.h"
#include "common/checkpoint/early_stop.h"
#include "ps/coordinator.h"

namespace muster {

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
