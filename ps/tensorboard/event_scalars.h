// The scalars of intervals and evaluations.
#pragma once

#include <cstdint>

#include "proto/events.pb.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// Tags that are present in every interval and in every evaluation of a set.
inline constexpr const char* kIntervalTag = "run/epoch";
inline constexpr const char* kTestLossTag = "loss/test";
inline constexpr const char* kValidationLossTag = "loss/validation";

// These functions take intervals and evaluations.
// The tag above that belongs to the event.
const char* TagOf(const events::Event& event);
int64_t StepOf(const events::Event& event);
void AddScalars(tensorboard::Summary& summary, const events::Event& event);

}  // namespace muster
