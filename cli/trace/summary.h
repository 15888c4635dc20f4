// Summarizes a trace as text.
#pragma once

#include <string>
#include <vector>

#include "cli/trace/trace_data.h"

namespace muster {

// For each track, the shares of time by kind; for the compute threads, the longest gaps between
// layers; the overlap of pushes, updates and the next forward pass with backward.
std::vector<std::string> TraceSummary(const Trace& trace);

}  // namespace muster
