#include "cli/doctor/hosts_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/doctor/pair_table.h"
#include "cli/text/console.h"
#include "cli/text/units.h"

namespace muster {
namespace {

constexpr double kManySeconds = 1;  // logs of several hosts are then hard to compare

// This host, and all others that can take part.
std::vector<ProbedHost> HostsToProbe(const std::vector<CheckedHost>& hosts,
                                     const ServerAddress& address) {
  const auto here =
      std::ranges::find_if(hosts, [](const CheckedHost& one) { return one.host.here; });
  std::vector<ProbedHost> probed{{.name = here != hosts.end() ? here->host.name : "this host",
                                  .address = address.address,
                                  .here = true}};
  for (const CheckedHost& one : hosts) {
    if (!one.host.here && one.problem.empty()) {
      probed.push_back({.name = one.host.name, .address = one.facts.address});
    }
  }
  return probed;
}

}  // namespace

std::vector<std::string> HostsLines(const std::vector<CheckedHost>& hosts,
                                    const ServerAddress& address,
                                    const std::vector<ProbedHost>& probed,
                                    const std::vector<PairLink>& pairs) {
  std::vector<std::string> lines = HostTable(hosts, TableFor::kDoctor);
  const int mtu = MtuOf(address.interface);
  lines.push_back("");
  lines.push_back(
      fmt::format("The server would listen at {}{}{}.", address.address,
                  address.interface.empty() ? "" : fmt::format(" over {}", address.interface),
                  mtu > 0 ? fmt::format(", MTU {}", mtu) : ""));
  for (std::string& line : PairLines(probed, pairs)) lines.push_back(std::move(line));
  int64_t failed = 0;
  for (const CheckedHost& one : hosts) {
    if (!one.problem.empty()) ++failed;
    if (std::abs(one.link.clock_offset_s) > kManySeconds) {
      lines.push_back(fmt::format(
          "Note: the clock of host {} differs by {}. No result depends on it, but times in logs "
          "do; set it with NTP.",
          one.host.name, OffsetText(one.link.clock_offset_s)));
    }
  }
  if (std::string note = ProcessorsNote(hosts); !note.empty()) lines.push_back(std::move(note));
  const auto apart =
      std::ranges::count_if(pairs, [](const PairLink& pair) { return !pair.problem.empty(); });
  lines.push_back(failed > 0 ? fmt::format("{} failed.", Plural(failed, "host"))
                  : apart == 0
                      ? "Runs on these hosts will work."
                      : fmt::format("Runs on these hosts will work, but slower, because of {}.",
                                    Plural(apart, "broken link")));
  return lines;
}

int RunHostsDoctor(SshHosts hosts) {
  FindHere("--hosts", hosts.hosts);
  ServerAddress address{.address = "127.0.0.1", .interface = "lo"};
  const auto other = std::ranges::find(hosts.hosts, false, &Host::here);
  if (other != hosts.hosts.end()) {
    address = AddressTowards(SshHostName(hosts.ssh, other->name));
    RequireReachable(address, other->name);
  }
  const std::vector<CheckedHost> checked =
      CheckHosts({.hosts = hosts.hosts, .ssh = hosts.ssh, .address = address});
  const std::vector<ProbedHost> probed = HostsToProbe(checked, address);
  PrintResult(HostsLines(checked, address, probed, MeasurePairs(hosts.ssh, probed)));
  RequireGood(checked);
  return 0;
}

}  // namespace muster
