// What the server and every relay check before they add a gradient, so that a worker speaks only
// for itself, and a relay only for the workers behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/plan/step_plan.h"
#include "proto/wire.pb.h"

namespace muster {

// Returns why a gradient does not fit, or "". `sender`: the rank whose message it is.
// `is_behind(rank)`: whether the messages of the member with this rank come over the sender's
// connection. Without a relay, that is only the sender.
std::string CheckGradient(const wire::GradientPart& part, uint32_t sender, const StepPlan& plan,
                          const std::function<bool(uint32_t rank)>& is_behind);

// Returns why times cannot be those of a step, or "". One that is not a number would stay in all
// sums and means.
std::string CheckTimes(const wire::StepTimes& times);

}  // namespace muster
