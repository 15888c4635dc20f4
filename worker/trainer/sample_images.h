// Sample images of an evaluation, for display.
#pragma once

#include <cstdint>
#include <span>

#include "proto/wire.pb.h"
#include "worker/data/dataset.h"

namespace muster {

// Adds the first samples of the set: as many as there are predictions and as fit into a message.
void AddSampleImages(const Dataset& set, std::span<const int32_t> predictions,
                     wire::EvaluatedBlock& block);

}  // namespace muster
