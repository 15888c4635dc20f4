#include "cli/job/workers_over_ssh.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/job/job_cards.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

// The first host that must reach this one.
const std::string& FirstOther(const SshHosts& hosts) {
  return std::ranges::find(hosts.hosts, false, &Host::here)->name;
}

}  // namespace

void PlanOverSsh(const LaunchArguments& arguments, config::Config& config) {
  const std::string& other = FirstOther(*arguments.hosts);
  const config::Cluster& cluster = config.cluster();
  if (cluster.transport() == config::Cluster::LOCAL ||
      cluster.transport() == config::Cluster::IPC) {
    throw Error(ExitCode::kUsage,
                "cluster.transport={} works on one host only, but host {} has workers, too; "
                "expected AUTO or TCP",
                config::Cluster::Transport_Name(cluster.transport()), other);
  }
  if (config.worker().threads() == 0) {
    throw Error(ExitCode::kUsage,
                "worker.threads=0: expected a number with -H, because hosts may have different "
                "cores; got host {} as well",
                other);
  }
  const std::string typed = TypedDevices(arguments.settings);
  if (arguments.wait_s > 0 || (!typed.empty() && config.worker().devices() != "cpu")) {
    throw Error(ExitCode::kUsage,
                "{}: the GPUs of host {} are not known here; expected none, and with "
                "worker.backend=CUDA each host takes idle GPUs for its workers",
                typed.empty() ? "--wait" : typed, other);
  }
  config.mutable_worker()->clear_devices();  // names GPUs of one host
}

std::shared_ptr<JobGpus> PlanGpusHere(const LaunchArguments& arguments,
                                      const config::Config& config) {
  uint32_t workers = 0;
  for (const Host& host : arguments.hosts->hosts) workers += host.here ? host.slots : 0;
  if (workers == 0 || config.worker().backend() != config::Worker::CUDA) return nullptr;
  return JobGpus::OfHost(config, workers, arguments.config_path);
}

ServerAddress AddressForHosts(const SshHosts& hosts, const config::Config& config) {
  const std::string& other = FirstOther(hosts);
  const std::string& interface = config.cluster().interface();
  ServerAddress address = interface.empty() ? AddressTowards(SshHostName(hosts.ssh, other))
                                            : AddressOfInterface(interface);
  RequireReachable(address, other);
  return address;
}

RelayPlan PlanRelay(const config::Config& config, const std::vector<Host>& hosts, size_t host) {
  const config::Cluster& cluster = config.cluster();
  const Host& mine = hosts[host];
  const bool wanted = cluster.host_sums() && cluster.transport() == config::Cluster::AUTO;
  if (!wanted || mine.here || mine.relay.empty()) return {};
  RelayPlan plan;
  const auto parent = [](size_t i) { return i & (i - 1); };
  if (host > 0 && !hosts[parent(host)].here) plan.via = hosts[parent(host)].relay;
  for (size_t other = host + 1; other < hosts.size(); ++other) {
    if (parent(other) == host && !hosts[other].here) plan.bind = mine.relay;
  }
  plan.used = mine.slots > 1 || !plan.via.empty() || !plan.bind.empty();
  return plan;
}

bool UsesRelays(const config::Config& config, const SshHosts& hosts) {
  for (size_t host = 0; host < hosts.hosts.size(); ++host) {
    if (PlanRelay(config, hosts.hosts, host).used) return true;
  }
  return false;
}

std::string ServerText(const ServerAddress& address, bool relays) {
  return address.endpoint() +
         (address.interface.empty() ? "" : fmt::format(" over {}", address.interface)) +
         (relays ? ", through relays" : "");
}

std::string HostsText(const SshHosts& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts.hosts) {
    names.push_back(fmt::format("{} ({})", host.name, host.slots));
  }
  return fmt::format("on {} over ssh: {}", Plural(static_cast<int64_t>(names.size()), "host"),
                     Join(names, ", "));
}

bool SharesByMeasure(config::Config& config) {
  config::Cluster& cluster = *config.mutable_cluster();
  if (config.worker().backend() == config::Worker::CUDA) return false;  // GPUs compute, not these
  if (cluster.has_shares() || config.run().slices() <= cluster.workers()) return false;
  cluster.set_shares(config::Cluster::MEASURED);
  return true;
}

DataCount CompareHosts(SshHosts& hosts, const ServerAddress& address, config::Config& config) {
  const std::vector<CheckedHost> checked =
      CheckHosts({.hosts = hosts.hosts,
                  .ssh = hosts.ssh,
                  .address = address,
                  .config = &config,
                  .patience_s = std::max(60.0, config.deadlines().start_s())});
  PrintResult(HostTable(checked, TableFor::kJob));
  const std::string note = ProcessorsNote(checked);
  if (!note.empty()) PrintResult(note);
  RequireGood(checked);
  if (!note.empty() && SharesByMeasure(config)) {
    PrintResult("Slices are distributed by measured speed (cluster.shares=MEASURED).");
  }
  for (size_t i = 0; i < checked.size(); ++i) {
    const HostFacts& facts = checked[i].facts;
    hosts.hosts[i].clock_ahead_s = checked[i].link.monotonic_offset_s;
    if (facts.relay_port == 0) continue;
    hosts.hosts[i].relay = ServerAddress{.address = facts.address}.endpoint(facts.relay_port);
  }
  return checked[0].facts.data;
}

}  // namespace muster
