#include "ps/lost_work.h"

#include <algorithm>

namespace muster {

// The first time all of it is suspected. From then on each is given by itself, and who is lost then
// was at that one.
std::optional<WorkItem> LostWork::OnLost(const std::vector<WorkItem>& was_at,
                                         Clock::time_point now) {
  std::vector<WorkItem> suspects = was_at;
  const auto known =
      std::ranges::find_if(was_at, [this](const WorkItem& item) { return Suspects(item); });
  if (known != was_at.end()) suspects = {*known};
  for (const WorkItem& item : suspects) {
    Kills& kills = kills_[item];
    kills.last = now;
    if (++kills.count >= kMostKills) return item;
  }
  return std::nullopt;
}

std::optional<LostWork::Clock::time_point> LostWork::HeldBackUntil(const WorkItem& item,
                                                                   Clock::time_point now) const {
  const auto kills = kills_.find(item);
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
    suspected = suspected || Suspects({WorkItem::Kind::kSlice, slice});
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
