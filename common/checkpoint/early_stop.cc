#include "common/checkpoint/early_stop.h"

#include <fmt/core.h>

#include <vector>

#include "common/base/text.h"

namespace muster {
namespace {

bool Reached(const config::Evaluation& settings, const checkpoint::Decisions& decisions) {
  return settings.has_stop_at_accuracy() && decisions.step() > 0 && !IsByLoss(decisions) &&
         decisions.accuracy() >= settings.stop_at_accuracy();
}

bool OutOfPatience(const config::Evaluation& settings, const checkpoint::Decisions& decisions) {
  return settings.patience() > 0 && decisions.stop().evaluations() >= settings.patience();
}

const char* SetOf(const checkpoint::Decisions& decisions) {
  return decisions.validation() ? "validation" : "test";
}

}  // namespace

std::string StopReason(const config::Evaluation& settings, const checkpoint::Decisions& decisions) {
  if (Reached(settings, decisions)) {
    return fmt::format(
        "reached the {} accuracy {:g} at step {}: evaluation.stop_at_accuracy is {:g}",
        SetOf(decisions), decisions.accuracy(), decisions.step(), settings.stop_at_accuracy());
  }
  if (!OutOfPatience(settings, decisions)) return "";
  return fmt::format("{}: evaluation.patience is {}",
                     NoBetterText(decisions, decisions.stop(), decisions.stop().evaluations(),
                                  settings.min_delta()),
                     settings.patience());
}

std::string StopReasonAt(const config::Evaluation& settings, const checkpoint::State& state,
                         int64_t total_steps) {
  // Only a state saved right after an evaluation stops the run. Otherwise the next evaluation
  // decides.
  const bool decides = state.decisions().step() == state.step() && state.step() < total_steps;
  return decides ? StopReason(settings, state.decisions()) : "";
}

std::string HowToGoOn(const config::Evaluation& settings, const checkpoint::Decisions& decisions) {
  std::vector<std::string> ways;
  if (Reached(settings, decisions)) {
    ways.push_back(
        decisions.accuracy() < 1
            ? fmt::format("--set evaluation.stop_at_accuracy=X with X above {:g}, up to 1",
                          decisions.accuracy())
            : "another run without evaluation.stop_at_accuracy, because no accuracy is above 1");
  }
  if (OutOfPatience(settings, decisions)) {
    ways.push_back(fmt::format("--set evaluation.patience=N with N above {}, or 0 for no limit",
                               decisions.stop().evaluations()));
  }
  return Join(ways, " and ");
}

std::string NoBetterText(const checkpoint::Decisions& decisions,
                         const checkpoint::Decisions::Waited& waited, int64_t evaluations,
                         double min_delta) {
  const bool by_loss = IsByLoss(decisions);
  if (waited.best_step() == 0) {
    return fmt::format("no finite {} loss in {} evaluation{}", SetOf(decisions), evaluations,
                       evaluations == 1 ? "" : "s");
  }
  return fmt::format("no {} {} {} than {:g} (step {}){} in {} evaluation{}",
                     by_loss ? "lower" : "better", SetOf(decisions), by_loss ? "loss" : "accuracy",
                     by_loss ? -waited.best() : waited.best(), waited.best_step(),
                     min_delta > 0 ? fmt::format(", by more than {:g},", min_delta) : "",
                     evaluations, evaluations == 1 ? "" : "s");
}

}  // namespace muster
