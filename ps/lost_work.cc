#include "ps/lost_work.h"

#include <algorithm>

namespace muster {

// The first time all that it had is suspected, since a subtree is one lease. From then on slices
// are given one by one, and the first one that is not done is the one that it was at.
std::optional<int64_t> LostWork::OnLost(const std::vector<Lease>& leases, int64_t slices,
                                        const std::function<bool(int64_t)>& missing,
                                        Clock::time_point now) {
  std::vector<int64_t> suspects;
  for (const Lease& lease : leases) {
    const Range range = Covers(lease.node, slices);
    for (int64_t slice = range.begin; slice < range.end; ++slice) {
      if (!missing(slice)) continue;
      if (kills_.contains(slice)) {
        suspects = {slice};
        break;
      }
      suspects.push_back(slice);
    }
    if (suspects.size() == 1 && kills_.contains(suspects[0])) break;
  }
  for (const int64_t slice : suspects) {
    Kills& kills = kills_[slice];
    kills.last = now;
    if (++kills.count >= kMostKills) return slice;
  }
  return std::nullopt;
}

std::optional<LostWork::Clock::time_point> LostWork::HeldBackUntil(int64_t slice,
                                                                   Clock::time_point now) const {
  const auto kills = kills_.find(slice);
  if (kills == kills_.end() || kills->second.count < kMostKills - 1) return std::nullopt;
  const Clock::time_point until = kills->second.last + kHoldBack;
  if (until <= now) return std::nullopt;
  return until;
}

void LostWork::Collect(const Step& step, const TreeNode& node,
                       std::vector<TreeNode>& pieces) const {
  const Range range = Covers(node, step.slices);
  int64_t orphaned = 0;
  bool suspected = false;
  for (int64_t slice = range.begin; slice < range.end; ++slice) {
    orphaned += step.orphaned(slice) ? 1 : 0;
    suspected = suspected || kills_.contains(slice);
  }
  if (orphaned == 0) return;
  if (node.level == 0 || (orphaned == range.size() && !suspected && step.is_whole(node))) {
    pieces.push_back(node);
    return;
  }
  for (const uint32_t child : {2 * node.index, 2 * node.index + 1}) {
    Collect(step, {node.level - 1, child}, pieces);
  }
}

std::vector<TreeNode> LostWork::Pieces(const Step& step, size_t helpers) const {
  std::vector<TreeNode> pieces;
  Collect(step, Root(step.slices), pieces);
  while (pieces.size() < helpers) {
    const auto largest = std::ranges::max_element(pieces, {}, &TreeNode::level);
    if (largest == pieces.end() || largest->level == 0) break;
    const TreeNode whole = *largest;
    pieces.erase(largest);
    for (const uint32_t child : {2 * whole.index, 2 * whole.index + 1}) {
      const TreeNode half{whole.level - 1, child};
      if (!Covers(half, step.slices).empty()) pieces.push_back(half);
    }
  }
  std::ranges::sort(pieces, {},
                    [&](const TreeNode& node) { return Covers(node, step.slices).begin; });
  return pieces;
}

}  // namespace muster
