// Measures the cost of calls that queue work on the GPU, as seen by the host.
#pragma once

namespace muster::cuda {

// Prints a table; each figure averages this many consecutive calls.
void PrintLaunchCosts(int calls);

}  // namespace muster::cuda
