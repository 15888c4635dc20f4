#include "cli/gpu/choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr unsigned kQuietPercent = 10;

bool IsQuiet(const Gpu& gpu) {
  return gpu.processes.empty() && gpu.sensors.utilization.value_or(0) < kQuietPercent;
}

// The score of a group of GPUs. Lower is better.
struct Score {
  size_t faulty = 0;   // the number of GPUs with memory errors
  size_t stirred = 0;  // the number of GPUs that are not quiet
  size_t kinds = 0;    // the number of models: the slowest GPU determines the time of a step
  int farthest = 0;    // the worst link between two of them
  long distance = 0;   // the sum of the links
  double free = 0;     // the total free memory, in bytes; more is better
  std::vector<size_t> group;

  bool operator<(const Score& other) const {
    return std::tie(faulty, stirred, kinds, farthest, distance, other.free, group) <
           std::tie(other.faulty, other.stirred, other.kinds, other.farthest, other.distance, free,
                    other.group);
  }
};

Score ScoreOf(const GpuSnapshot& snapshot, const std::vector<size_t>& group) {
  Score score{.group = group};
  std::set<std::string> names;
  for (size_t i = 0; i < group.size(); ++i) {
    const Gpu& gpu = snapshot.gpus[group[i]];
    names.insert(gpu.name);
    if (gpu.ecc_errors.value_or(0) > 0) ++score.faulty;
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

// In the order of GpuLink.
constexpr const char* kLinkTexts[] = {
    "joined by NVLink",        "behind one PCIe switch", "behind PCIe switches of one host bridge",
    "at one PCIe host bridge", "at one NUMA node",       "at several NUMA nodes"};

}  // namespace

// Greedy: grows a group from each candidate by adding the best next GPU, and returns the best
// group.
std::vector<size_t> ChooseGpus(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                               size_t count) {
  MUSTER_CHECK(0 < count && count <= candidates.size());
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

std::string ChoiceReason(const GpuSnapshot& snapshot, const std::vector<size_t>& candidates,
                         const std::vector<size_t>& chosen) {
  const Score score = ScoreOf(snapshot, chosen);
  std::string text = score.stirred == 0 ? "idle" : "not used for computing";
  if (chosen.size() > 1 && !snapshot.links.empty()) {
    text += std::string(", ") + kLinkTexts[score.farthest];
  } else if (chosen.size() < candidates.size()) {
    text += ", the most free memory";
  }
  return text;
}

}  // namespace muster
