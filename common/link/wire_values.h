// Converts fields of messages to the types of plans, links and tensor memory.
#pragma once

#include <optional>
#include <vector>

#include "common/link/link.h"
#include "common/plan/assignment.h"
#include "common/plan/gradient_layout.h"
#include "common/plan/scalar_sums.h"
#include "common/plan/slices.h"
#include "proto/wire.pb.h"

namespace muster {

Urgency UrgencyOf(const wire::WeightsChunk& weights);
Urgency UrgencyOf(const wire::GradientPart& part);

TreeNode NodeOf(const wire::Subtree& subtree);
wire::Subtree SubtreeOf(const TreeNode& node);
std::vector<TreeNode> NodesOf(const google::protobuf::RepeatedPtrField<wire::Subtree>& subtrees);
// The scalars of a slice or block with this number of samples. Nothing if there are too many, a
// name is not allowed or comes twice, or there are no samples. Any value is allowed, even NaN.
std::optional<ScalarSums> ScalarsOf(const google::protobuf::RepeatedPtrField<wire::Scalar>& scalars,
                                    int64_t samples);
// Both ends compute the layout from the Welcome message.
GradientLayout GradientLayoutOf(const wire::Welcome& welcome);

}  // namespace muster
