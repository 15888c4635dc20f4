// `muster doctor --hosts a,b,c`: whether these hosts can train together, and how fast the network
// between each and this one is.
#pragma once

#include <string>
#include <vector>

#include "cli/hosts/host_check.h"

namespace muster {

// Two tables, one for the machines and one for their connections to this host, and a verdict.
std::vector<std::string> HostsLines(const std::vector<CheckedHost>& hosts,
                                    const ServerAddress& address);

// Returns the exit code: 0, or that of the first host that failed. Throws Error(kUsage) for a wrong
// list.
int RunHostsDoctor(SshHosts hosts);

}  // namespace muster
