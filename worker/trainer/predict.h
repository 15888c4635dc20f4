// What a network makes of single samples of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "worker/backend/backend.h"
#include "worker/data/dataset.h"

namespace muster {

// `logits`: what the loss reads, one for each class. Valid during the call.
using OnPrediction =
    std::function<void(int64_t sample, int32_t label, std::span<const float> logits)>;

// Calls `on_prediction` for each of these samples of `set`, in ascending order. Each is computed
// within the block that an evaluation has it in, so that the bits are those of the evaluation.
// `weights`: an arena of the graph's layout.
void PredictSamples(const config::Config& config, const Graph& graph, Backend& backend,
                    std::span<const float> weights, const Dataset& set,
                    std::vector<int64_t> samples, const OnPrediction& on_prediction);

}  // namespace muster
