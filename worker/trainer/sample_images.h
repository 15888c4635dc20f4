// Sample images of an evaluation, for display.
#pragma once

#include <cstdint>
#include <span>

#include "proto/wire.pb.h"
#include "worker/data/dataset.h"

namespace muster {

// Adds the samples of `block` to show to users, with their predictions (one per sample of the
// block). At most `images` samples are shown, spread evenly over the set; fewer if they would not
// fit into the messages of the blocks.
void AddSampleImages(const Dataset& set, int64_t images, int64_t block_size,
                     std::span<const int32_t> predictions, wire::EvaluatedBlock& block);

}  // namespace muster
