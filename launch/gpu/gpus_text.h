// What `muster gpus` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launch/gpu/gpu.h"
#include "launch/gpu/ticket.h"

namespace muster {

// A table of the cards, and below it who uses them and who waits. Without cards one line that says
// why.
std::vector<std::string> GpusLines(const GpuSnapshot& seen, const std::vector<SeenTicket>& tickets);

// The same as an object: {"driver", "gpus": [...], "jobs": [...]}, with "none" where there are no
// cards. Bytes, degrees Celsius, watts, percent; what is not known is null.
nlohmann::json GpusJson(const GpuSnapshot& seen, const std::vector<SeenTicket>& tickets);

}  // namespace muster
