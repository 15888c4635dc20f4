// Who touches device memory, and whether it may.
#pragma once

#include <cstddef>

#include "tests/cuda/software_gpu/stream.h"

namespace muster::software_gpu {

// Memory that nobody has written yet: its bytes are NaNs, and a copy passes them on.
enum class Undefined { kAllowed, kRefused };

// What copies and libraries do, before they do it: a violation if it is not allocated, or is used
// by work of another stream that is not known to be done. False after a violation.
bool ReadRange(const Work& work, const void* begin, size_t bytes, Undefined undefined);
bool WriteRange(const Work& work, void* begin, size_t bytes);

}  // namespace muster::software_gpu
