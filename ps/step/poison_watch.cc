#include "ps/step/poison_watch.h"

#include <algorithm>

namespace muster {

void PoisonWatch::BeginStep() {
  losses_.clear();
  taken_.clear();
}

std::optional<WorkItem> PoisonWatch::OnLost(uint32_t rank, std::vector<WorkItem> items, Time now) {
  if (auto taken = taken_.extract(rank)) items = std::move(taken.mapped());
  const auto known =
      std::ranges::find_if(items, [this](const WorkItem& item) { return Suspects(item); });
  if (known != items.end()) items = {WorkItem(*known)};
  for (const WorkItem& item : items) {
    Losses& losses = losses_[item];
    losses.last = now;
    if (++losses.count >= kMostLosses) return item;
  }
  return std::nullopt;
}

bool PoisonWatch::Suspects(const WorkItem& item) const {
  return losses_.contains(item) || std::ranges::any_of(taken_, [&](const auto& taken) {
           return std::ranges::find(taken.second, item) != taken.second.end();
         });
}

std::optional<PoisonWatch::Time> PoisonWatch::PausedUntil(const WorkItem& item, Time now) const {
  const auto found = losses_.find(item);
  if (found == losses_.end() || found->second.count < kMostLosses - 1) return std::nullopt;
  const Time until = found->second.last + kPause;
  if (until <= now) return std::nullopt;
  return until;
}

}  // namespace muster
