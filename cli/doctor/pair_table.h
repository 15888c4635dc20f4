// The network between each two hosts as text.
#pragma once

#include <string>
#include <vector>

#include "cli/hosts/pair_probe.h"

namespace muster {

// Tables of latency and bandwidth; with many hosts, the slowest pairs. Then who does not reach
// whom. Ends with an empty line.
std::vector<std::string> PairLines(const std::vector<ProbedHost>& hosts,
                                   const std::vector<PairLink>& pairs);

}  // namespace muster
