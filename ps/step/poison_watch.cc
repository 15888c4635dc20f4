#include "ps/step/poison_watch.h"

#include <algorithm>

namespace muster {

std::optional<WorkItem> PoisonWatch::OnLost(const std::vector<WorkItem>& items, Time now) {
  std::vector<WorkItem> suspects = items;
  const auto known =
      std::ranges::find_if(items, [this](const WorkItem& item) { return Suspects(item); });
  if (known != items.end()) suspects = {*known};
  for (const WorkItem& item : suspects) {
    Losses& losses = losses_[item];
    losses.last = now;
    if (++losses.count >= kMostLosses) return item;
  }
  return std::nullopt;
}

std::optional<PoisonWatch::Time> PoisonWatch::PausedUntil(const WorkItem& item, Time now) const {
  const auto found = losses_.find(item);
  if (found == losses_.end() || found->second.count < kMostLosses - 1) return std::nullopt;
  const Time until = found->second.last + kPause;
  if (until <= now) return std::nullopt;
  return until;
}

}  // namespace muster
