#include "ps/record/straggler.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

using Slowest = StragglerWatch::Slowest;

Slowest Compare(const std::vector<uint32_t>& ranks, std::vector<double> busy, ptrdiff_t at) {
  Slowest one{.rank = ranks[static_cast<size_t>(at)], .busy_ms = busy[static_cast<size_t>(at)]};
  busy.erase(busy.begin() + at);
  std::ranges::sort(busy);
  one.others_ms = (busy[(busy.size() - 1) / 2] + busy[busy.size() / 2]) / 2;
  return one;
}

// Returns the slowest rank and the median of the others, or nothing if a rank has too few reports.
// Among nearly equal ranks, the previous slowest rank, `before`, stays the slowest unless it is
// faster than the others.
std::optional<Slowest> FindSlowest(const RecentTimes& recent,
                                   const std::optional<Slowest>& before) {
  std::vector<double> busy;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < recent.ranks(); ++rank) {
    if (!recent.Reports(rank)) continue;
    ranks.push_back(rank);
    busy.push_back(recent.UsualBusy(rank, StragglerWatch::kSteps));
    if (busy.back() <= 0) return std::nullopt;
  }
  if (ranks.size() < 2) return std::nullopt;
  constexpr double kNearly = 0.9;
  const auto slowest = std::ranges::max_element(busy);
  const auto same = before ? std::ranges::find(ranks, before->rank) : ranks.end();
  if (same != ranks.end()) {
    const Slowest kept = Compare(ranks, busy, same - ranks.begin());
    if (kept.busy_ms > kNearly * *slowest && kept.busy_ms >= kept.others_ms) return kept;
  }
  return Compare(ranks, busy, slowest - busy.begin());
}

}  // namespace

std::optional<StragglerWatch::Change> StragglerWatch::Look(const RecentTimes& recent, int64_t step,
                                                           Time now) {
  std::optional<Slowest> found = FindSlowest(recent, slowest_);
  if (!found) return std::nullopt;
  said_.resize(recent.ranks());
  const bool same = slowest_ && slowest_->rank == found->rank;
  const bool was_straggling = slowest_ && slowest_->straggles;
  const double limit = same && was_straggling ? kFine : kSlow;
  found->straggles = found->busy_ms > limit * found->others_ms &&
                     (limit == kFine || found->busy_ms > found->others_ms + kLeastMs);
  if (same && found->straggles == was_straggling) {  // no change
    found->since_step = slowest_->since_step;
    found->since = slowest_->since;
    slowest_ = found;
    return std::nullopt;
  }
  // The rank became slow gradually; assume half the steps of the mean ago.
  found->since_step = std::max<int64_t>(0, step - static_cast<int64_t>(kSteps) / 2);
  found->since = now;
  const std::optional<Slowest> before = std::exchange(slowest_, found);
  if (found->straggles) return Begin(now);
  if (was_straggling && std::exchange(announced_, false)) return Change{*before, true};
  return std::nullopt;
}

std::optional<StragglerWatch::Change> StragglerWatch::Begin(Time now) {
  std::optional<Time>& said = said_[slowest_->rank];
  announced_ = !said || now - *said >= kQuiet;
  if (!announced_) return std::nullopt;
  said = now;
  return Change{*slowest_, false};
}

}  // namespace muster
