// `muster doctor --hosts a,b,c`: whether these hosts can train together, and how fast the network
// between each two of them is.
#pragma once

#include <string>
#include <vector>

#include "cli/hosts/host_check.h"
#include "cli/hosts/pair_probe.h"

namespace muster {

// A table of the machines, those of PairLines, and a verdict.
std::vector<std::string> HostsLines(const std::vector<CheckedHost>& hosts,
                                    const ServerAddress& address,
                                    const std::vector<ProbedHost>& probed,
                                    const std::vector<PairLink>& pairs);

// Returns the exit code: 0, or that of the first host that failed. Throws Error(kUsage) for a wrong
// list.
int RunHostsDoctor(SshHosts hosts);

}  // namespace muster
