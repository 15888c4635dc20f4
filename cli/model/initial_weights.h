// What a run would start from (run.initial_weights), looked through before anything starts.
#pragma once

#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"

namespace muster {

// Lines for the header: the file and what of it is skipped. Empty without initial weights. Throws
// Error: kData that names what does not fit or is not finite, kUsage for a directory.
std::vector<std::string> DescribeInitialWeights(const config::Run& run, const Graph& graph);

}  // namespace muster
