#include "cli/job/bottleneck.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/text/units.h"

namespace muster {
namespace {

struct StepPart {
  double share;
  std::string name, hint;
};

struct Rank {
  int64_t rank;
  double compute_ms, input_ms;
};

std::vector<Rank> RanksOf(const events::Summary& summary) {
  std::vector<Rank> ranks;
  for (const events::Summary::Rank& one : summary.ranks()) {
    if (!one.parts().has_compute_ms() || !one.parts().has_input_ms()) return {};
    ranks.push_back({one.rank(), one.parts().compute_ms(), one.parts().input_ms()});
  }
  return ranks;
}

// Who is late: one rank that is slower on average, by at least half of what the others wait; or now
// one, now another.
std::string WhoIsSlow(const std::vector<Rank>& ranks, double step_ms, double imbalance,
                      const char* devices) {
  double mean = 0;
  for (const Rank& rank : ranks) mean += rank.compute_ms / static_cast<double>(ranks.size());
  const Rank& slowest = *std::ranges::max_element(ranks, {}, &Rank::compute_ms);
  if (slowest.compute_ms - mean < 0.5 * imbalance * step_ms) {
    return fmt::format(
        "now one rank is late, now another, and all wait for it: look for other work on the {}",
        devices);
  }
  return fmt::format(
      "rank {} computes for {}, the mean of all is {}, and they wait for it: look for other work "
      "on its {}, or for slices and images that do not divide evenly among the ranks",
      slowest.rank, FormatMilliseconds(slowest.compute_ms), FormatMilliseconds(mean), devices);
}

}  // namespace

std::string Bottleneck(const events::Summary& summary, bool on_gpus) {
  const double step_ms = summary.measured().step_ms();
  const events::StepShares& shares = summary.measured().shares();
  const double overhead = shares.overhead(), input = shares.input(), imbalance = shares.imbalance();
  const std::vector<Rank> ranks = RanksOf(summary);
  if (ranks.empty() || step_ms <= 0) return "";
  if (!shares.has_overhead() || !shares.has_input() || !shares.has_imbalance()) return "";

  const StepPart compute{1 - overhead - imbalance, "compute",
                         on_gpus ? "more GPUs (--workers), worker.precision=TF32 or BF16, or a "
                                   "smaller network would help"
                                 : "more cores (worker.threads, workers) or a smaller network "
                                   "would help"};
  const StepPart others[] = {
      {imbalance, "slowest rank",
       WhoIsSlow(ranks, step_ms, imbalance, on_gpus ? "GPUs and cores" : "cores")},
      {input, "input pipeline",
       fmt::format("rank {} waits for its batches: try more data.prefetch_threads or less "
                   "preprocessing",
                   std::ranges::max_element(ranks, {}, &Rank::input_ms)->rank)},
      {overhead - input, "server and communication", "try a larger batch or more server.threads"}};
  const StepPart& other = *std::ranges::max_element(others, {}, &StepPart::share);
  const StepPart& largest = other.share > compute.share ? other : compute;
  return largest.name + ": " + largest.hint;
}

}  // namespace muster
