// `muster inspect`: describes a config, without starting anything.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace muster {

// Layers, variables, chunks and totals as tables; lines have no newline. `config` comes from
// LoadConfig, so the lines do not depend on the machine, except for the number of workers.
std::vector<std::string> InspectLines(config::Config config, int width);

}  // namespace muster
