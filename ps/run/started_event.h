// Describes the run when all workers have joined.
#pragma once

#include "common/graph/graph.h"
#include "common/plan/step_plan.h"
#include "proto/events.pb.h"
#include "ps/members/roster.h"
#include "ps/update/engine.h"

namespace muster {

events::Started StartedEvent(const StepPlan& plan, const Roster& roster, const Graph& graph,
                             const Engine& engine);

}  // namespace muster
