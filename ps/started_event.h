// What the launcher and a person are told when all workers have joined.
#pragma once

#include "common/plan/step_plan.h"
#include "proto/events.pb.h"
#include "ps/roster.h"

namespace muster {

// Who takes part, and how long the run is.
events::Started StartedEvent(const StepPlan& plan, const Roster& roster);

}  // namespace muster
