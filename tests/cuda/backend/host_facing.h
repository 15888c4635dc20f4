// Wraps a device with its own memory as a backend that computes in host memory: copies an op's
// inputs to the device and its results back. Tests for host backends then run on the device.
// Activations are floats outside, whatever their type inside.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace muster::testing {

std::unique_ptr<Backend> MakeHostFacing(std::shared_ptr<Backend> device);

}  // namespace muster::testing
