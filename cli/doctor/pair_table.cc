#include "cli/doctor/pair_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "cli/text/text_table.h"
#include "cli/text/units.h"

namespace muster {
namespace {

constexpr size_t kMostInTable = 8;  // hosts
constexpr size_t kMostPairs = 10;   // in lists

std::string BandwidthText(double bytes_per_s) { return FormatBytes(bytes_per_s) + "/s"; }

std::string LatencyText(const PairLink& pair) {
  return FormatMilliseconds(1000 * pair.link.latency_s);
}

double Slower(const PairLink& pair) { return std::min(pair.link.to_peer, pair.link.from_peer); }

// `cell` gets a pair and whether the row is its first host.
std::vector<std::string> Matrix(const std::vector<ProbedHost>& hosts,
                                const std::vector<PairLink>& pairs,
                                const std::function<std::string(const PairLink&, bool)>& cell) {
  std::vector<TextTable::Column> columns{{""}};
  for (const ProbedHost& host : hosts) columns.push_back({host.name, true});
  std::vector<std::vector<std::string>> rows;
  for (const ProbedHost& host : hosts) {
    rows.emplace_back(hosts.size() + 1, "-");
    rows.back()[0] = host.name;
  }
  for (const PairLink& pair : pairs) {
    const bool failed = !pair.problem.empty();
    rows[pair.first][pair.second + 1] = failed ? "fails" : cell(pair, true);
    rows[pair.second][pair.first + 1] = failed ? "fails" : cell(pair, false);
  }
  TextTable table(columns);
  for (std::vector<std::string>& row : rows) table.AddRow(std::move(row));
  return table.Lines();
}

std::vector<std::string> SlowestPairs(const std::vector<ProbedHost>& hosts,
                                      std::vector<PairLink> pairs) {
  std::erase_if(pairs, [](const PairLink& pair) { return !pair.problem.empty(); });
  std::ranges::stable_sort(pairs, {}, Slower);
  if (pairs.size() > kMostPairs) pairs.resize(kMostPairs);
  TextTable table({{"slowest"}, {"and"}, {"latency", true}, {"there", true}, {"back", true}});
  for (const PairLink& pair : pairs) {
    table.AddRow({hosts[pair.first].name, hosts[pair.second].name, LatencyText(pair),
                  BandwidthText(pair.link.to_peer), BandwidthText(pair.link.from_peer)});
  }
  return table.Lines();
}

}  // namespace

std::vector<std::string> PairLines(const std::vector<ProbedHost>& hosts,
                                   const std::vector<PairLink>& pairs) {
  if (pairs.empty()) return {""};
  std::vector<std::string> lines;
  const auto add = [&](const std::string& title, const std::vector<std::string>& more) {
    lines.insert(lines.end(), {"", title});
    lines.insert(lines.end(), more.begin(), more.end());
  };
  if (hosts.size() > kMostInTable) {
    add(fmt::format("Network, the slowest of {}:",
                    Plural(static_cast<int64_t>(pairs.size()), "pair")),
        SlowestPairs(hosts, pairs));
  } else {
    add("Latency:",
        Matrix(hosts, pairs, [](const PairLink& pair, bool) { return LatencyText(pair); }));
    add("Bandwidth, from the host of a row to that of a column:",
        Matrix(hosts, pairs, [](const PairLink& pair, bool from_first) {
          return BandwidthText(from_first ? pair.link.to_peer : pair.link.from_peer);
        }));
  }
  lines.emplace_back("");
  size_t failed = 0;
  for (const PairLink& pair : pairs) {
    if (pair.problem.empty() || ++failed > kMostPairs) continue;
    lines.push_back(
        fmt::format("Host {} does not reach host {} at {}: {}; allow this in the firewall of host "
                    "{}, or choose "
                    "another network with --set cluster.interface=NAME",
                    hosts[pair.second].name, hosts[pair.first].name, hosts[pair.first].address,
                    pair.problem, hosts[pair.first].name));
  }
  if (failed > kMostPairs) lines.push_back(fmt::format("... and {} more", failed - kMostPairs));
  return lines;
}

}  // namespace muster
