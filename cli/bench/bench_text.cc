#include "cli/bench/bench_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cli/text/text_table.h"
#include "cli/text/units.h"

namespace muster {

double UpdateBytes(const RoundShape& shape) {
  return shape.bytes * (shape.workers + 2 + 2 * shape.states);
}

double UpdateSeconds(const RoundShape& shape, double memory_bytes_per_s) {
  return UpdateBytes(shape) / memory_bytes_per_s;
}

double LocalRound(const RoundShape& shape, const MachineCosts& costs) {
  return costs.local_latency_s + UpdateSeconds(shape, costs.memory_bytes_per_s);
}

double LoopbackRound(const RoundShape& shape, const MachineCosts& costs) {
  return costs.tcp_latency_s + 2 * shape.workers * shape.bytes / costs.loopback_bytes_per_s;
}

double RelayRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s) {
  const double link = network.BytesPerSecond();
  const double chunk = std::min(shape.bytes, shape.chunk_bytes);
  const int levels = std::bit_width(static_cast<unsigned>(std::max(1, shape.workers) - 1));
  RoundShape at_server = shape;
  at_server.workers = levels + 1;
  const double transfer = levels * shape.bytes / link;
  return 2 * levels * network.hop_s +
         std::max(transfer, UpdateSeconds(at_server, memory_bytes_per_s)) +
         std::max(0, 3 * levels - 1) * chunk / link;
}

double RingRound(const RoundShape& shape, const HostNetwork& network, double memory_bytes_per_s) {
  const double hops = 2.0 * (shape.workers - 1);
  RoundShape alone = shape;
  alone.workers = 1;
  return hops * (network.hop_s + shape.bytes / shape.workers / network.BytesPerSecond()) +
         UpdateSeconds(alone, memory_bytes_per_s);
}

namespace {

std::string Time(double seconds) {
  if (seconds < 1e-5) return fmt::format("{:.1f} us", seconds * 1e6);
  return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6)
                        : FormatMilliseconds(seconds * 1e3);
}

RoundShape ShapeAt(const BenchResult& result, double bytes) {
  RoundShape shape = result.model.shape;
  shape.bytes = bytes;
  shape.workers = result.workers;
  return shape;
}

void Append(std::vector<std::string>& lines, const TextTable& table) {
  for (std::string& line : table.Lines()) lines.push_back(std::move(line));
}

TextTable RoundTable(const BenchResult& result, const MachineCosts& costs) {
  TextTable table({{"weights", true},
                   {"update alone", true},
                   {"memory limit", true},
                   {"reached", true},
                   {"round, shared memory", true},
                   {"predicted", true},
                   {"round, TCP", true},
                   {"predicted", true}});
  for (const BenchRow& row : result.rows) {
    const bool first = &row == &result.rows.front(), last = &row == &result.rows.back();
    const RoundShape shape = ShapeAt(result, row.bytes);
    table.AddRow({FormatBytes(row.bytes), Time(row.update_s), Time(row.limit_s),
                  FormatPercent(row.limit_s / row.update_s), Time(row.local_s),
                  first ? "" : Time(LocalRound(shape, costs)), Time(row.tcp_s),
                  first || last ? "" : Time(LoopbackRound(shape, costs))});
  }
  return table;
}

const BenchRow& ModelRow(const BenchResult& result) {
  return *std::ranges::min_element(result.rows, {}, [&](const BenchRow& row) {
    return std::abs(row.bytes - result.model.shape.bytes);
  });
}

// Returns the duration of a step in which a round takes the given share.
std::string StepFor(double round_s, double share) { return Time(round_s / share); }

void AddModel(const BenchResult& result, std::vector<std::string>& lines) {
  const BenchRow& row = ModelRow(result);
  lines.push_back(fmt::format("{}, {}, {}, {}:", result.model.name, FormatBytes(row.bytes),
                              Plural(result.workers, "worker"), result.optimizer));
  lines.push_back(
      fmt::format("  A round takes {} over shared memory ({} at the 99th percentile), {} "
                  "over TCP on this host.",
                  Time(row.local_s), Time(row.local_p99_s), Time(row.tcp_s)));
  lines.push_back(
      fmt::format("  Even without overlap with the backward pass, it takes less than 5 % of any "
                  "step longer than {} ({} over TCP).",
                  StepFor(row.local_s, 0.05), StepFor(row.tcp_s, 0.05)));
  if (result.model.flops_per_worker > 0) {
    lines.push_back(
        fmt::format("  A worker computes {} per step, so steps are that long at up to {:.0f} "
                    "GFLOP/s.",
                    FormatFlops(result.model.flops_per_worker),
                    result.model.flops_per_worker / (row.local_s / 0.05) / 1e9));
  }
}

constexpr double kGigabits[] = {1, 10, 25, 100};
constexpr int kHosts[] = {2, 4, 8, 16, 32, 64};

TextTable NetworkTable(const BenchResult& result, const MachineCosts& costs) {
  std::vector<TextTable::Column> columns{{"link"}, {"how"}};
  for (const int hosts : kHosts) columns.push_back({fmt::format("{} hosts", hosts), true});
  TextTable table(columns);
  for (const double gigabits : kGigabits) {
    const HostNetwork network{.bits_per_s = gigabits * 1e9};
    std::vector<std::string> server{fmt::format("{:g} Gbit/s", gigabits), "one server, relays"};
    std::vector<std::string> ring{"", "all-reduce"};
    for (const int hosts : kHosts) {
      RoundShape shape = result.model.shape;
      shape.workers = hosts;
      server.push_back(Time(RelayRound(shape, network, costs.memory_bytes_per_s)));
      ring.push_back(Time(RingRound(shape, network, costs.memory_bytes_per_s)));
    }
    table.AddRow(server);
    table.AddRow(ring);
  }
  return table;
}

}  // namespace

MachineCosts CostsOf(const BenchResult& result) {
  const BenchRow& small = result.rows.front();
  const BenchRow& large = result.rows.back();
  const RoundShape shape = ShapeAt(result, large.bytes);
  const double both_ways = 2.0 * result.workers;
  // The lower bound of the time prevents noise from looking like a high speed.
  const double loopback = both_ways * (large.bytes - small.bytes) /
                          std::max(large.tcp_s - small.tcp_s, large.tcp_s / 10);
  return {.local_latency_s = std::max(0.0, small.local_s - small.update_s),
          .tcp_latency_s = std::max(0.0, small.tcp_s - both_ways * small.bytes / loopback),
          .memory_bytes_per_s = UpdateBytes(shape) / large.update_s,
          .loopback_bytes_per_s = loopback};
}

std::vector<std::string> BenchLines(const BenchResult& result) {
  const MachineCosts costs = CostsOf(result);
  const BenchRow& large = result.rows.back();
  std::vector<std::string> lines{
      fmt::format("Server with {} ({}), {}, {}; medians, every result verified.",
                  Plural(result.server_threads, "thread"), result.instruction_set,
                  Plural(result.workers, "worker"), result.optimizer),
      ""};
  Append(lines, RoundTable(result, costs));
  const bool impossible = std::ranges::any_of(result.rows, [](const BenchRow& row) {
    return std::min(row.local_s, row.tcp_s) < row.update_s;
  });
  if (impossible) {
    lines.push_back(
        "Some rounds are shorter than the update, which is a part of them, so other programs used "
        "the machine at times. Run this again when it is idle.");
  }
  lines.push_back("");
  lines.push_back(fmt::format(
      "The memory bandwidth for an update is {:.1f} GB/s; the update reaches {} of that.",
      UpdateBytes(ShapeAt(result, large.bytes)) / large.limit_s / 1e9,
      FormatPercent(large.limit_s / large.update_s)));
  lines.push_back(fmt::format(
      "A round costs {} over shared memory and {} over TCP before the first byte; TCP on this host "
      "moves {:.1f} GB/s through the server.",
      Time(costs.local_latency_s), Time(costs.tcp_latency_s), costs.loopback_bytes_per_s / 1e9));
  lines.push_back("");
  AddModel(result, lines);
  lines.push_back("");
  lines.push_back(
      "Predicted rounds of this model on several hosts, with one worker each (cost model in "
      "docs/DESIGN.md):");
  Append(lines, NetworkTable(result, costs));
  lines.push_back(
      "Relays add gradients on their way, so the server's link carries one for each doubling of "
      "the "
      "hosts: where all-reduce is faster, that link is the bottleneck.");
  return lines;
}

}  // namespace muster
