// What a trace says, in words and numbers.
#pragma once

#include <string>
#include <vector>

#include "cli/trace/trace_data.h"

namespace muster {

// Per track the share of time by kind; what the compute threads do between their layers, with the
// longest such gaps; how far pushes, updates and the next forward pass overlap with backward.
std::vector<std::string> TraceSummary(const Trace& trace);

}  // namespace muster
