#include "launch/bottleneck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launch/server_event.h"
#include "launch/units.h"

namespace muster {
namespace {

constexpr double kWorthSaying = 0.1;  // of a step

struct Part {
  double ms;
  std::string name, hint;
};

struct Rank {
  int64_t rank;
  double compute_ms, input_ms;
  double busy_ms() const { return compute_ms + input_ms; }
};

std::vector<Rank> RanksOf(const nlohmann::json& summary) {
  std::vector<Rank> ranks;
  const auto found = summary.find("ranks");
  if (found == summary.end() || !found->is_array()) return ranks;
  for (const nlohmann::json& one : *found) {
    if (!one.is_object()) return {};
    const Rank rank{Whole(one, "rank"), Number(one, "compute_ms"), Number(one, "input_ms")};
    if (!std::isfinite(rank.busy_ms())) return {};
    ranks.push_back(rank);
  }
  return ranks;
}

std::string Text(const Part& part, double step_ms) {
  return fmt::format("{}: {} of a step's {} ({}); {}", part.name, FormatMilliseconds(part.ms),
                     FormatMilliseconds(step_ms), FormatPercent(part.ms / step_ms), part.hint);
}

}  // namespace

std::vector<BottleneckRow> Bottleneck(const nlohmann::json& summary) {
  if (!summary.is_object()) return {};
  const double step_ms = Number(summary, "step_ms");
  const std::vector<Rank> ranks = RanksOf(summary);
  if (ranks.empty() || !std::isfinite(step_ms) || step_ms <= 0) return {};

  double mean = 0;
  for (const Rank& rank : ranks) mean += rank.compute_ms / static_cast<double>(ranks.size());
  const Rank& slowest =
      *std::max_element(ranks.begin(), ranks.end(),
                        [](const Rank& a, const Rank& b) { return a.busy_ms() < b.busy_ms(); });
  double last = Number(summary, "slowest_ms");
  last = std::isfinite(last) ? std::max(last, slowest.busy_ms()) : slowest.busy_ms();
  const Part compute{std::min(mean, slowest.compute_ms), "compute",
                     "more cores (worker.threads, workers) or a smaller network would help"};
  const Part others[] = {
      {slowest.input_ms, "input pipeline",
       fmt::format("rank {} waits for its batches: try more data.prefetch_threads or less "
                   "preprocessing",
                   slowest.rank)},
      {std::max(0.0, slowest.compute_ms - mean), "slowest rank",
       fmt::format("rank {} computes for {}, the mean of all is {}, and they wait for it: look for "
                   "other work on its cores",
                   slowest.rank, FormatMilliseconds(slowest.compute_ms), FormatMilliseconds(mean))},
      {last - slowest.busy_ms(), "uneven steps",
       "now one rank is late, now another, and all wait for it: look for other work on the cores"},
      {std::max(0.0, step_ms - last), "server and communication",
       "try a larger batch or more server.threads"}};
  const Part& other = *std::max_element(std::begin(others), std::end(others),
                                        [](const Part& a, const Part& b) { return a.ms < b.ms; });

  if (other.ms > compute.ms) return {{"limit", Text(other, step_ms)}};
  std::vector<BottleneckRow> rows{{"limit", Text(compute, step_ms)}};
  if (other.ms >= kWorthSaying * step_ms) rows.push_back({"then", Text(other, step_ms)});
  return rows;
}

}  // namespace muster
