// Sample images of an evaluation, for display.
#pragma once

#include <cstdint>
#include <span>

#include "proto/wire.pb.h"
#include "worker/data/dataset.h"

namespace muster {

// Adds samples of one block, as many as fit into a message. `images` samples are spread evenly over
// the set; those of the block are added. `begin`: its first sample. `predictions`: one per sample.
void AddSampleImages(const Dataset& set, int64_t images, int64_t begin,
                     std::span<const int32_t> predictions, wire::EvaluatedBlock& block);

}  // namespace muster
