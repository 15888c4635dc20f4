// Computes predictions without a server: for single samples, or for all blocks of an evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "worker/backend/backend.h"
#include "worker/data/dataset.h"
#include "worker/data/pipeline.h"

namespace muster {

// `logits` is the input of the loss. It is valid during the call.
using OnPrediction =
    std::function<void(int64_t sample, int32_t label, std::span<const float> logits)>;

// Calls `on_prediction` for these samples of `set` in ascending order. Each is computed within its
// block of an evaluation, so that the bits are the same as there. `weights` has the graph's layout.
void PredictSamples(const config::Config& config, const Graph& graph, Backend& backend,
                    std::span<const float> weights, const Dataset& set,
                    std::vector<int64_t> samples, const OnPrediction& on_prediction);

// `predicted` holds the class of each sample; it is empty if the network predicts values. `logits`
// holds the inputs of the loss if they are wanted. All arguments are valid during the call.
using OnBlock =
    std::function<void(const PreparedBatch& batch, const LossSums& sums,
                       std::span<const int32_t> predicted, std::span<const float> logits)>;

// Computes all blocks of `set` in as many threads as the config has workers. Each thread makes its
// own backend. Calls of `on_block` are serialized; the blocks arrive in any order.
void EvaluateBlocks(const config::Config& config, const Graph& graph,
                    const std::function<std::unique_ptr<Backend>()>& make_backend,
                    std::span<const float> weights, const Dataset& set, bool with_logits,
                    const OnBlock& on_block);

}  // namespace muster
