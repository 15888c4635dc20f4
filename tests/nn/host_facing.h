// Wraps a device with its own memory or its own type of activations as a backend that computes on
// floats in host memory: copies an op's inputs to the device and its results back. Tests for host
// backends then run on the device.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace muster {

std::unique_ptr<Backend> MakeHostFacing(std::shared_ptr<Backend> device);

}  // namespace muster
