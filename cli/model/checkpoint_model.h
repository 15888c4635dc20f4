// The weights of a checkpoint as a file of weights.
#pragma once

#include <string>

#include "common/checkpoint/checkpoint_reader.h"

namespace muster {

// Whether an evaluation of the run uses the moving average, and whether the checkpoint has one.
struct CheckpointWeights {
  bool evaluates_average = false;
  bool has_average = false;
};
CheckpointWeights WeightsIn(const CheckpointReader& checkpoint);

// Writes the weights, or their average, to `path` as a run writes model.safetensors. All of what it
// reads is checked. Throws Error: kData, kUsage where the network is not one of this version's,
// kFailure.
void WriteCheckpointModel(const CheckpointReader& checkpoint, bool average,
                          const std::string& path);

}  // namespace muster
