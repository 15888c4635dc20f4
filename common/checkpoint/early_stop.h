// Decides whether a run ends early because of its evaluations. All functions are pure: the server
// uses them to decide, and the launcher to announce the decision.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"

namespace muster {

// Explains why the run ends at its last counted evaluation; "" if it continues.
std::string StopReason(const config::Evaluation& settings, const checkpoint::Decisions& decisions);

// Explains why a run resumed from this state would end before its first step; "" if it would not.
std::string StopReasonAt(const config::Evaluation& settings, const checkpoint::State& state,
                         int64_t total_steps);

// Lists settings that let the run continue: "--set evaluation.patience=N with N above 3, or 0".
std::string HowToGoOn(const config::Evaluation& settings, const checkpoint::Decisions& decisions);

// Whether the state's `accuracy` is the negative loss, because there is no accuracy. Early versions
// did not write by_loss.
template <typename Scored>
bool IsByLoss(const Scored& state) {
  if (state.has_by_loss()) return state.by_loss();
  return !(state.accuracy() >= 0) || std::signbit(state.accuracy());
}

// Returns, for example, "no better test accuracy than 0.62 (step 800) in 3 evaluations". `waited`
// must be part of `decisions`.
std::string NoBetterText(const checkpoint::Decisions& decisions,
                         const checkpoint::Decisions::Waited& waited, int64_t evaluations,
                         double min_delta);

}  // namespace muster
