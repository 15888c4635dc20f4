// `muster launch -H a:4,b:4`: the server and the workers of this host are children of the launcher,
// as usual. One ssh for each other host starts an agent there (cli/hosts/host_agent.h), which
// starts that host's workers. The config and the token travel through the agent's standard input.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu/job_gpus.h"
#include "cli/hosts/host_check.h"
#include "cli/job/launch_command.h"
#include "proto/config_fwd.h"

namespace muster {

// Throws Error(kUsage) if settings do not fit a job on several hosts.
void PlanOverSsh(const LaunchArguments& arguments, config::Config& config);

// The idle GPUs that the workers of this host need; null if there are none. Other hosts plan their
// own (cli/hosts/host_agent.h). Throws what JobGpus::OfHost throws.
std::shared_ptr<JobGpus> PlanGpusHere(const LaunchArguments& arguments,
                                      const config::Config& config);

// The address of this host at which the others reach the server. Throws Error(kUsage).
ServerAddress AddressForHosts(const SshHosts& hosts, const config::Config& config);

// How the workers of a host reach the server: through a relay (worker/relay/relay.h) if they are
// several, or if there are more than two hosts. The relays form a binomial tree, like the tree of
// slices: relay i connects to that of the host i without its lowest bit. So the server's host gets
// one sum for each level of the tree, and not one for each host.
struct RelayPlan {
  bool used = false;
  std::string bind;  // where other relays connect, or ""
  std::string via;   // the relay that leads to the server, or ""
};
RelayPlan PlanRelay(const config::Config& config, const std::vector<Host>& hosts, size_t host);
// Whether any host has one.
bool UsesRelays(const config::Config& config, const SshHosts& hosts);

// "on 3 hosts over ssh: a (4), b (4) and c (4)"
std::string HostsText(const SshHosts& hosts);

// "tcp://10.0.0.1:4711 over eth0, through relays"
std::string ServerText(const ServerAddress& address, bool relays);

// Distributes slices by measured speed, for hosts whose processors differ and compute, if the
// config does not say otherwise and there are slices to move. Returns whether it changed `config`.
bool SharesByMeasure(config::Config& config);

// Prints a table of the hosts, and sets Host::relay and Host::clock_ahead_s. If their processors
// differ, workers get slices by measured speed, unless the config says otherwise. Throws Error if
// the job would fail on one of them. Returns the number of samples on the first host.
DataCount CompareHosts(SshHosts& hosts, const ServerAddress& address, config::Config& config);

}  // namespace muster
