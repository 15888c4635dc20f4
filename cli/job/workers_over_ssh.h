// `muster launch -H a:4,b:4`: the server and the workers of this host are children of the launcher,
// as usual. One ssh for each other host starts an agent there (cli/hosts/host_agent.h), which
// starts that host's workers. The config and the token travel through the agent's standard input.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/hosts/host_check.h"
#include "cli/job/launch_command.h"
#include "proto/config_fwd.h"

namespace muster {

// Throws Error(kUsage) if settings do not fit a job on several hosts.
void PlanOverSsh(const LaunchArguments& arguments, config::Config& config);

// The address of this host at which the others reach the server. Throws Error(kUsage).
ServerAddress AddressForHosts(const SshHosts& hosts, const config::Config& config);

// "on 3 hosts over ssh: a (4), b (4) and c (4)"
std::string HostsText(const SshHosts& hosts);

// Prints a table of the hosts. Throws Error if the job would fail on one of them. Returns the
// number of samples on the first host.
DataCount CompareHosts(const SshHosts& hosts, const ServerAddress& address,
                       const config::Config& config);

}  // namespace muster
