// `muster import --map NAMES`: what another program's variables are called here.
#pragma once

#include <string>

#include "common/model/load_weights.h"

namespace muster {

// Reads a file of lines "THEIRS OURS" ("THEIRS -": leave it out); '#' begins a comment. Throws
// Error(kUsage) that names file and line.
TensorNames ReadTensorNames(const std::string& path);

}  // namespace muster
