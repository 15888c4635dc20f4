// Says what happened when the host touches device memory, before the process dies of it.
#pragma once

#include "tests/cuda/software_gpu/device_memory.h"

namespace muster::software_gpu {

// From now on, once. The memory must stay.
void ExplainHostAccess(const DeviceMemory* memory);
// No more: the code that explains may go.
void StopExplaining();

}  // namespace muster::software_gpu
