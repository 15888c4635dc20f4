// Summarizes a trace as text.
#pragma once

#include <string>
#include <vector>

#include "cli/trace/trace_data.h"

namespace muster {

// Lists the shares of time by kind for each track, the longest gaps between layers for the compute
// threads, and the overlap of pushes, updates and the next forward pass with the backward pass.
std::vector<std::string> TraceSummary(const Trace& trace);

}  // namespace muster
