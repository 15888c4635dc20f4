// What the host pays for each call that queues work.
#pragma once

namespace muster::cuda {

// Prints a table; each figure is of this many calls one after the other.
void PrintLaunchCosts(int calls);

}  // namespace muster::cuda
