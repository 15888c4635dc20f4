#include "ps/partial_gradients.h"

#include <algorithm>
#include <set>

namespace muster {

PartialGradients::PartialGradients(std::span<const Chunk> chunks, WireType type)
    : chunks_(chunks), type_(type), states_(chunks.size()) {}

void PartialGradients::Expect(const Assignment& assignment) {
  expected_.clear();
  std::vector<TreeNode> nodes;
  for (uint32_t rank = 0; rank < assignment.ranks(); ++rank) {
    for (const TreeNode& node : assignment.nodes[rank]) {
      expected_.push_back({node, rank});
      nodes.push_back(node);
    }
  }
  tree_ = std::make_unique<TreeSum>(nodes, assignment.slices);
}

void PartialGradients::BeginStep() {
  for (ChunkState& state : states_) {
    state.parts.assign(expected_.size(), {});
    state.present.assign(expected_.size(), Presence::kMissing);
    state.count = 0;
  }
}

PartialGradients::Result PartialGradients::Add(uint32_t rank, size_t chunk, const TreeNode& node,
                                               bool empty, Payload payload) {
  if (chunk >= chunks_.size()) return Result::kUnknownChunk;
  const auto found = std::ranges::find_if(
      expected_, [&](const Expected& part) { return part.rank == rank && part.node == node; });
  if (found == expected_.end()) return Result::kUnknownSubtree;
  const size_t want = empty ? 0 : chunks_[chunk].floats() * BytesOf(type_);
  if (payload.bytes != want) return Result::kWrongSize;
  ChunkState& state = states_[chunk];
  const auto part = static_cast<size_t>(found - expected_.begin());
  if (state.present[part] != Presence::kMissing) return Result::kRepeated;
  state.present[part] = empty ? Presence::kEmpty : Presence::kHere;
  state.parts[part] = std::move(payload);
  ++state.count;
  return Result::kAccepted;
}

ChunkGradient PartialGradients::PartsOf(size_t chunk) const {
  ChunkGradient gradient{.tree = tree_.get(), .type = type_, .parts = {}};
  const ChunkState& state = states_[chunk];
  for (size_t i = 0; i < state.parts.size(); ++i) {
    gradient.parts.push_back(state.present[i] == Presence::kHere ? state.parts[i].data : nullptr);
  }
  return gradient;
}

std::vector<uint32_t> PartialGradients::MissingRanks() const {
  std::set<uint32_t> missing;
  for (const ChunkState& state : states_) {
    for (size_t i = 0; i < state.present.size(); ++i) {
      if (state.present[i] == Presence::kMissing) missing.insert(expected_[i].rank);
    }
  }
  return {missing.begin(), missing.end()};
}

}  // namespace muster
