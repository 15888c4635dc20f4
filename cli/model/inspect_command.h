// `muster inspect`: what a config describes, without starting anything.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace muster {

// Layers, variables, chunks and totals as tables, each line without its newline. `config` is as
// LoadConfig returned it: of what depends on the machine only the number of workers is said.
std::vector<std::string> InspectLines(config::Config config);

}  // namespace muster
