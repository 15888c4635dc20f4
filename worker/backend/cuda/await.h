// Functions that let the host wait for an event on the GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace muster::cuda {

// Whether the event has happened. Throws an Error if the GPU has failed.
bool HasHappened(cudaEvent_t event);
// Waits until HasHappened(event), but at most `seconds`. Returns HasHappened(event).
bool AwaitEvent(cudaEvent_t event, double seconds);

}  // namespace muster::cuda
