// Batches whose memory the device has locked, so that it copies them itself.
#pragma once

#include <memory>

#include "worker/backend/backend.h"
#include "worker/data/pipeline.h"

namespace muster {

// Returns a pipeline of the same batches. Used on the backend's thread; copies of its batches must
// be done when it is destroyed.
std::unique_ptr<BatchPipeline> LockBatches(Backend& backend,
                                           std::unique_ptr<BatchPipeline> batches);

}  // namespace muster
