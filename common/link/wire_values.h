// What messages say, as the values that plans, links and tensor memory take.
#pragma once

#include "common/link/urgency.h"
#include "common/plan/gradient_layout.h"
#include "common/plan/slices.h"
#include "proto/wire.pb.h"

namespace muster {

Urgency UrgencyOf(const wire::WeightsChunk& weights);
Urgency UrgencyOf(const wire::GradientPart& part);

TreeNode NodeOf(const wire::Subtree& subtree);

// Both ends work it out from the Welcome.
GradientLayout GradientLayoutOf(const wire::Welcome& welcome);

}  // namespace muster
