// Explains an access of the host to device memory before the process dies of it.
#pragma once

#include "tests/cuda/software_gpu/device_memory.h"

namespace muster::software_gpu {

// Installs the handler. `memory` must stay valid.
void ExplainHostAccess(const DeviceMemory* memory);
// Removes the handler, so that its code may be unloaded.
void StopExplaining();

}  // namespace muster::software_gpu
