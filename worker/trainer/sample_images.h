// Samples of an evaluation, for people to look at.
#pragma once

#include <cstdint>
#include <span>

#include "proto/wire.pb.h"
#include "worker/data/dataset.h"

namespace muster {

// Adds the first samples of the set, as many as there are predictions and fit into a message.
void AddSampleImages(const Dataset& set, std::span<const int32_t> predictions,
                     wire::EvaluatedBlock& block);

}  // namespace muster
