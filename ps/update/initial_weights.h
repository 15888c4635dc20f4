// Weights that a run starts from, of another run or another program.
#pragma once

#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "ps/update/variables.h"

namespace muster {

// Takes W(0) from run.initial_weights, if that is set, and logs what it has taken. Throws
// Error(kData) that names the file and what does not fit.
void LoadInitialWeights(const config::Run& run, const Graph& graph, Variables& variables);

}  // namespace muster
