// Whether a run ends because of what its evaluations have come to. Pure functions: the server
// decides by them, and the launcher says beforehand what will be decided.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"

namespace muster {

// Why the run ends at the last evaluation that counts, or "".
std::string StopReason(const config::Evaluation& settings, const checkpoint::Decisions& decisions);

// Why a run that goes on from this state is over before its first step, or "".
std::string StopReasonAt(const config::Evaluation& settings, const checkpoint::State& state,
                         int64_t total_steps);

// With which settings it would go on: "--set evaluation.patience=N with N above 3, or 0".
std::string HowToGoOn(const config::Evaluation& settings, const checkpoint::Decisions& decisions);

// What evaluations are compared by is the accuracy; of values, which have none, minus the loss.
inline bool IsAccuracy(double score) { return score >= 0 && !std::signbit(score); }

// "no better test accuracy than 0.62 (step 800) in 3 evaluations". `waited` is one of `decisions`.
std::string NoBetterText(const checkpoint::Decisions& decisions,
                         const checkpoint::Decisions::Waited& waited, int64_t evaluations,
                         double min_delta);

}  // namespace muster
