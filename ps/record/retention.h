// Decides which checkpoints to keep.
#pragma once

#include <optional>
#include <vector>

#include "common/checkpoint/checkpoint_name.h"

namespace muster {

struct KeptCheckpoint {
  CheckpointName name;
  std::optional<double> accuracy;  // accuracy on the set that drives decisions, if evaluated
};

// Removes the expired checkpoints from `kept` (oldest first) and returns them: all except the
// newest `keep_last` and the `keep_best` most accurate older ones. Always keeps the newest.
std::vector<CheckpointName> TakeExpired(std::vector<KeptCheckpoint>& kept, size_t keep_last,
                                        size_t keep_best);

}  // namespace muster
