// A file of weights that a command is about to use.
#pragma once

#include "common/tensors/safetensors_reader.h"

namespace muster {

// RequireWhole, with what to do about it: a checkpoint of the same run that has these weights, if
// there is one.
void RequireWholeModel(const SafetensorsReader& file);

}  // namespace muster
