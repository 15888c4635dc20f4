// What NVML says of one card.
#pragma once

#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/nvml_api.h"

namespace muster::nvml {

// Everything about the device. A number that NVML does not give, or that cannot be, is left out;
// without a UUID or its memory the card has its trouble.
Gpu ReadCard(const Api& api, Device device, const std::string& index);

// The parts of a card that is divided (MIG), as devices; nothing of any other.
std::vector<Device> PartsOf(const Api& api, Device device);

GpuLink LinkOf(const Api& api, Device a, Device b);

}  // namespace muster::nvml
