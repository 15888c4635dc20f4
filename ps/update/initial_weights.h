// Initial weights from another run or another program.
#pragma once

#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "ps/update/variables.h"

namespace muster {

// Loads W(0) from run.initial_weights, if set, and logs what it loaded. Throws Error(kData) that
// names the file and what does not match.
void LoadInitialWeights(const config::Run& run, const Graph& graph, Variables& variables);

}  // namespace muster
