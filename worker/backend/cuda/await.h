// The host's wait for an event of the card.
#pragma once

#include <cuda_runtime_api.h>

namespace muster::cuda {

// Whether it has happened; throws what failed on the card since.
bool HasHappened(cudaEvent_t event);
// Waits for that, up to `seconds`.
bool AwaitEvent(cudaEvent_t event, double seconds);

}  // namespace muster::cuda
