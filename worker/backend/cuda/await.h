// Waits of the host for an event of the GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace muster::cuda {

// Whether the event has happened; throws an error of the GPU since then.
bool HasHappened(cudaEvent_t event);
// Waits until HasHappened(event), at most `seconds`, and returns it.
bool AwaitEvent(cudaEvent_t event, double seconds);

}  // namespace muster::cuda
