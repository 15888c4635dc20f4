// A device with memory of its own that looks like one that computes in the host's: whatever an op
// is given is copied to the device before it runs and what it wrote is copied back. Tests that were
// written for such backends then run on the device. Activations are floats outside, whatever they
// are inside.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace muster::testing {

std::unique_ptr<Backend> MakeHostFacing(std::shared_ptr<Backend> device);

}  // namespace muster::testing
