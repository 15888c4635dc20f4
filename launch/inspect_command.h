// `muster inspect`: what a config describes, without starting anything.
#pragma once

#include <string>
#include <vector>

#include "common/config.h"

namespace muster {

// Layers, variables, chunks and totals as tables, each line without its newline. `config` is as
// LoadConfig returned it.
std::vector<std::string> InspectLines(const config::Config& config);

}  // namespace muster
