#include "launch/gpu/choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/error.h"
#include "launch/gpu/process_info.h"
#include "launch/text/units.h"

namespace muster {
namespace {

// What a driver keeps of an idle card, and small tools beside it, is below this.
constexpr double kUnseenShare = 0.1;
// A job that wants a whole GPU can have no more of an idle one: the driver keeps some memory.
constexpr double kMostShare = 0.95;
constexpr unsigned kQuietPercent = 10;
// Above this many subsets they are grown card by card.
constexpr double kMostSubsets = 20'000;

std::string ProcessWords(const GpuProcess& process) {
  const ProcessText text = DescribeProcess(process.pid);
  if (!text.seen) {
    return fmt::format("process {} computes on it (of another container or host user)",
                       process.pid);
  }
  return fmt::format("{} of {}, pid {}{}, computes on it",
                     text.job.empty() ? text.command : text.job, text.user, process.pid,
                     text.since ? ", since " + ClockText(*text.since) : "");
}

bool IsQuiet(const Gpu& gpu) {
  return gpu.processes.empty() && gpu.utilization.value_or(0) < kQuietPercent;
}

// How good a group of cards is; the least is the best.
struct Score {
  size_t stirred = 0;  // cards that are not quiet
  size_t kinds = 0;    // the slowest one of a step decides how long it takes
  int farthest = 0;    // link between two of them
  long distance = 0;   // sum of the links
  double free = 0;     // bytes, all together; the more the better
  std::vector<size_t> group;

  bool operator<(const Score& other) const {
    return std::tie(stirred, kinds, farthest, distance, other.free, group) <
           std::tie(other.stirred, other.kinds, other.farthest, other.distance, free, other.group);
  }
};

Score ScoreOf(const GpuSnapshot& snapshot, const std::vector<size_t>& group) {
  Score score{.group = group};
  std::set<std::string> names;
  for (size_t i = 0; i < group.size(); ++i) {
    const Gpu& gpu = snapshot.gpus[group[i]];
    names.insert(gpu.name);
    if (!IsQuiet(gpu)) ++score.stirred;
    score.free += static_cast<double>(gpu.free_bytes);
    for (size_t j = 0; j < i && !snapshot.links.empty(); ++j) {
      const int link = static_cast<int>(snapshot.links[group[i]][group[j]]);
      score.farthest = std::max(score.farthest, link);
      score.distance += link;
    }
  }
  score.kinds = names.size();
  return score;
}

bool FewSubsets(size_t of, size_t count) {
  double subsets = 1;
  for (size_t i = 0; i < count; ++i) {
    subsets = subsets * static_cast<double>(of - i) / static_cast<double>(i + 1);
  }
  return subsets <= kMostSubsets;
}

std::vector<size_t> BestOfAll(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                              size_t count) {
  std::vector<bool> in(candidates.size());
  std::fill(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(count), true);
  Score best;
  do {
    std::vector<size_t> group;
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i]) group.push_back(candidates[i]);
    }
    Score score = ScoreOf(snapshot, group);
    if (best.group.empty() || score < best) best = std::move(score);
  } while (std::prev_permutation(in.begin(), in.end()));
  return best.group;
}

// From each card, always the one that fits best: not always the best group, but a good one.
std::vector<size_t> BestGrown(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                              size_t count) {
  Score best;
  for (const size_t first : candidates) {
    Score grown = ScoreOf(snapshot, {first});
    while (grown.group.size() < count) {
      Score next;
      for (const size_t more : candidates) {
        if (std::ranges::find(grown.group, more) != grown.group.end()) continue;
        std::vector<size_t> group = grown.group;
        group.push_back(more);
        Score score = ScoreOf(snapshot, group);
        if (next.group.empty() || score < next) next = std::move(score);
      }
      grown = std::move(next);
    }
    if (best.group.empty() || grown < best) best = std::move(grown);
  }
  std::ranges::sort(best.group);
  return best.group;
}

const char* LinkText(int farthest) {
  switch (static_cast<GpuLink>(farthest)) {
    case GpuLink::kNvlink:
      return "joined by NVLink";
    case GpuLink::kSwitch:
      return "behind one PCIe switch";
    case GpuLink::kSwitches:
      return "behind PCIe switches of one host bridge";
    case GpuLink::kHostBridge:
      return "at one PCIe host bridge";
    case GpuLink::kNode:
      return "at one NUMA node";
    case GpuLink::kSystem:
      return "at several NUMA nodes";
  }
  return "";
}

}  // namespace

std::string WhyBusy(const Gpu& gpu, double free_share) {
  if (!gpu.trouble.empty()) return gpu.trouble;
  uint64_t seen_bytes = 0;
  for (const GpuProcess& process : gpu.processes) {
    if (process.computes) return ProcessWords(process);
    seen_bytes += process.bytes.value_or(0);
  }
  const auto total = static_cast<double>(gpu.total_bytes);
  const double unseen = static_cast<double>(gpu.used_bytes) -
                        static_cast<double>(std::min(seen_bytes, gpu.used_bytes));
  if (unseen > kUnseenShare * total) {
    return fmt::format("{} of its memory are used by somebody who cannot be seen from here",
                       FormatBytes(unseen));
  }
  const double needed = std::min(free_share, kMostShare) * total;
  if (static_cast<double>(gpu.free_bytes) < needed) {
    return fmt::format("{} of its memory are free, {} are needed",
                       FormatBytes(static_cast<double>(gpu.free_bytes)), FormatBytes(needed));
  }
  if (gpu.temperature && gpu.slowdown_temperature &&
      *gpu.temperature >= *gpu.slowdown_temperature) {
    return fmt::format("it has {} degrees, and slows down at {}", *gpu.temperature,
                       *gpu.slowdown_temperature);
  }
  return "";
}

std::vector<size_t> ChooseCards(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                                size_t count) {
  MUSTER_CHECK(0 < count && count <= candidates.size());
  return FewSubsets(candidates.size(), count) ? BestOfAll(snapshot, candidates, count)
                                              : BestGrown(snapshot, candidates, count);
}

std::string ChoiceReason(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                         const std::vector<size_t>& chosen) {
  const Score score = ScoreOf(snapshot, chosen);
  std::string text = score.stirred == 0 ? "idle" : "nobody computes there";
  if (chosen.size() > 1 && !snapshot.links.empty()) {
    text += std::string(", ") + LinkText(score.farthest);
  } else if (chosen.size() < candidates.size()) {
    text += ", the most free memory";
  }
  return text;
}

}  // namespace muster
