// How many samples a run would find.
#pragma once

#include "launch/data/data_count.h"
#include "proto/config_fwd.h"

namespace muster {

// Opens the data as a worker would. What is wrong with them becomes `problem`.
DataCount CountSamples(const config::Config& config);
// The same for what trains nothing: the test set alone, of which DataCount::train says nothing.
DataCount CountTestSamples(const config::Config& config);

}  // namespace muster
