// CUDA_VISIBLE_DEVICES: what the environment leaves of this machine's cards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launch/gpu/gpu.h"

namespace muster {

struct VisibleCards {
  bool limited = false;            // the variable is set
  std::string value;               // to this
  std::vector<std::string> uuids;  // of all that are left, in its order; of all, if not limited
};

// The cards that CUDA offers to a process with this environment, without "GPU-" or "MIG-", in its
// order. Throws Error where the driver cannot be asked.
std::vector<std::string> AskDriver(const std::string& library);

// What `value` (null: not set) leaves of the cards seen. Integers count in CUDA's order, which is
// NVML's only with CUDA_DEVICE_ORDER=PCI_BUS_ID, a UUID may be shortened, and the list ends at the
// first that is not there: the driver decides all of that, and `ask` asks it (AskDriver in a child
// process). Where it cannot be asked, what needs no driver is worked out here, and the rest is
// Error(kUsage).
VisibleCards ReadVisibleDevices(const char* value, const char* device_order,
                                const GpuSnapshot& seen,
                                const std::function<std::vector<std::string>()>& ask);

// Of this process's environment.
VisibleCards VisibleHere(const GpuSnapshot& seen);

}  // namespace muster
