#include "ps/record/retention.h"

#include <algorithm>

namespace muster {

std::vector<CheckpointName> TakeExpired(std::vector<KeptCheckpoint>& kept, size_t keep_last,
                                        size_t keep_best) {
  std::vector<CheckpointName> expired;
  // If the last two checkpoints have the same weights, the newer one includes the evaluation.
  if (kept.size() > 1 && kept.end()[-2].name.step == kept.back().name.step) {
    expired.push_back(kept.end()[-2].name);
    kept.erase(kept.end() - 2);
  }
  const size_t newest = std::min(kept.size(), std::max<size_t>(keep_last, 1));
  std::vector<KeptCheckpoint> older(kept.begin(), kept.end() - static_cast<ptrdiff_t>(newest));
  // Sorts by accuracy. If two are equal, prefers the older one, like the best step in the summary.
  std::erase_if(older, [](const KeptCheckpoint& one) { return !one.accuracy; });
  std::ranges::stable_sort(older, [](const KeptCheckpoint& a, const KeptCheckpoint& b) {
    return *a.accuracy > *b.accuracy;
  });
  older.resize(std::min(older.size(), keep_best));
  for (size_t i = 0; i + newest < kept.size(); ++i) {
    if (std::ranges::find(older, kept[i].name, &KeptCheckpoint::name) == older.end()) {
      expired.push_back(kept[i].name);
    }
  }
  std::erase_if(kept, [&](const KeptCheckpoint& one) {
    return std::ranges::find(expired, one.name) != expired.end();
  });
  return expired;
}

}  // namespace muster
