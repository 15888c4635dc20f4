// Sample images of an evaluation, for display.
#pragma once

#include <cstdint>
#include <span>

#include "proto/wire.pb.h"
#include "worker/data/dataset.h"

namespace muster {

// Of `images` samples that are spread evenly over the set, adds those of the block that begins at
// sample `begin` and has these predictions, as many as fit into a message.
void AddSampleImages(const Dataset& set, int64_t images, int64_t begin,
                     std::span<const int32_t> predictions, wire::EvaluatedBlock& block);

}  // namespace muster
