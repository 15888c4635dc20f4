// For Tuner: an op's work, once, so that it is timed.
#pragma once

#include "common/graph/graph.h"
#include "worker/backend/backend.h"

namespace muster::cuda {

// Whether the op of this layer has algorithms to choose from.
bool HasAlgorithms(const Layer& layer);

// Runs the op forward and, if it trains, back, in memory of its own, on zeros. It keeps its copies
// of weights itself (OpOptions::layouts). False: there is not enough memory for that.
bool Rehearse(Backend& backend, const Layer& layer, const OpOptions& options, Op& op);

}  // namespace muster::cuda
