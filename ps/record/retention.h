// Which checkpoints stay.
#pragma once

#include <optional>
#include <vector>

#include "common/checkpoint/checkpoint_name.h"

namespace muster {

struct KeptCheckpoint {
  CheckpointName name;
  std::optional<double> accuracy;  // of its weights on the test set, where they were evaluated
};

// Takes out of `kept`, oldest first, what goes when the last one of it has been written: all but
// the newest `keep_last`, and the `keep_best` most accurate besides. At least the newest stays.
std::vector<CheckpointName> TakeExpired(std::vector<KeptCheckpoint>& kept, size_t keep_last,
                                        size_t keep_best);

}  // namespace muster
