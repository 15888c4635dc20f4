#include "cli/doctor/hosts_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/text/console.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"

namespace muster {
namespace {

constexpr double kManySeconds = 1;  // logs of several hosts are then hard to compare

std::string BandwidthText(double bytes_per_s) {
  return bytes_per_s > 0 ? fmt::format("{}/s", FormatBytes(bytes_per_s)) : "-";
}

std::vector<std::string> MachineLines(const std::vector<CheckedHost>& hosts) {
  TextTable table({{"host"},
                   {"version"},
                   {"cores", true},
                   {"memory", true},
                   {"disk", true},
                   {"updates with"},
                   {"processor"}});
  for (const CheckedHost& one : hosts) {
    const HostFacts& facts = one.facts;
    if (facts.cores == 0) {
      table.AddRow(
          {one.host.name, facts.version.empty() ? "-" : facts.version, "-", "-", "-", "-", "-"});
      continue;
    }
    table.AddRow({one.host.name, facts.version, std::to_string(facts.cores),
                  FormatBytes(facts.memory_available), FormatBytes(facts.disk_free),
                  facts.instructions, facts.processor});
  }
  return table.Lines();
}

std::vector<std::string> LinkLines(const std::vector<CheckedHost>& hosts) {
  TextTable table({{"host"},
                   {"interface"},
                   {"MTU", true},
                   {"clock", true},
                   {"latency", true},
                   {"to it", true},
                   {"from it", true}});
  for (const CheckedHost& one : hosts) {
    if (one.host.here || one.link.latency_s <= 0) continue;
    table.AddRow({one.host.name, one.facts.interface.empty() ? "-" : one.facts.interface,
                  one.facts.mtu > 0 ? std::to_string(one.facts.mtu) : "-",
                  OffsetText(one.link.clock_offset_s),
                  FormatMilliseconds(1000 * one.link.latency_s), BandwidthText(one.link.to_peer),
                  BandwidthText(one.link.from_peer)});
  }
  return table.Lines();
}

}  // namespace

std::vector<std::string> HostsLines(const std::vector<CheckedHost>& hosts,
                                    const ServerAddress& address) {
  std::vector<std::string> lines = MachineLines(hosts);
  const int mtu = MtuOf(address.interface);
  lines.push_back("");
  lines.push_back(
      fmt::format("Network, from {}{}{}:", address.address,
                  address.interface.empty() ? "" : fmt::format(" over {}", address.interface),
                  mtu > 0 ? fmt::format(", MTU {}", mtu) : ""));
  for (std::string& line : LinkLines(hosts)) lines.push_back(std::move(line));
  lines.push_back("");
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
  lines.push_back(failed == 0 ? "Runs on these hosts will work."
                              : fmt::format("{} failed.", Plural(failed, "host")));
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
      CheckHosts({.hosts = hosts.hosts, .ssh = hosts.ssh, .address = address, .bandwidth = true});
  PrintResult(HostsLines(checked, address));
  RequireGood(checked);
  return 0;
}

}  // namespace muster
