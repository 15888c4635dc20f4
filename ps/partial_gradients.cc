#include "ps/partial_gradients.h"

#include <algorithm>

namespace muster {

PartialGradients::PartialGradients(std::span<const Chunk> chunks, WireType type)
    : chunks_(chunks), type_(type), states_(chunks.size()) {}

void PartialGradients::Expect(const Assignment& assignment) {
  slices_ = assignment.slices;
  expected_.clear();
  for (const std::vector<TreeNode>& nodes : assignment.nodes) {
    expected_.insert(expected_.end(), nodes.begin(), nodes.end());
  }
  tree_ = std::make_unique<TreeSum>(expected_, slices_);
}

void PartialGradients::BeginStep() {
  other_sums_.clear();
  for (ChunkState& state : states_) {
    state.parts.resize(expected_.size());
    for (size_t i = 0; i < expected_.size(); ++i) state.parts[i] = {.node = expected_[i]};
    state.others = false;
    state.slices = 0;
    state.tree = tree_.get();
  }
}

bool PartialGradients::Overlaps(size_t chunk, const TreeNode& node) const {
  return std::ranges::any_of(states_[chunk].parts, [&](const Part& part) {
    return part.present != Presence::kMissing && Overlap(part.node, node);
  });
}

int64_t PartialGradients::SlicesOf(size_t chunk, const TreeNode& node) const {
  int64_t slices = 0;
  for (const Part& part : states_[chunk].parts) {
    if (part.present == Presence::kMissing || !Overlap(part.node, node)) continue;
    slices += Covers(part.node.level < node.level ? part.node : node, slices_).size();
  }
  return slices;
}

PartialGradients::Result PartialGradients::Add(uint32_t rank, size_t chunk, const TreeNode& node,
                                               bool empty, Payload payload) {
  if (chunk >= chunks_.size()) return Result::kUnknownChunk;
  const size_t want = empty ? 0 : chunks_[chunk].floats() * BytesOf(type_);
  if (payload.bytes != want) return Result::kWrongSize;
  ChunkState& state = states_[chunk];
  auto found = std::ranges::find(state.parts, node, &Part::node);
  const bool expected = found != state.parts.end();
  // Expected subtrees are disjoint.
  if (expected && found->present != Presence::kMissing) return Result::kCovered;
  if ((!expected || state.others) && Overlaps(chunk, node)) return Result::kCovered;
  if (!expected) {
    state.parts.push_back({.node = node});
    state.others = true;
    found = state.parts.end() - 1;
  }
  found->rank = rank;
  found->present = empty ? Presence::kEmpty : Presence::kHere;
  found->payload = std::move(payload);
  state.slices += Covers(node, slices_).size();
  if (state.others && Complete(chunk)) EndOthers(state);
  return Result::kAccepted;
}

void PartialGradients::EndOthers(ChunkState& state) {
  // What was expected came as something else.
  std::erase_if(state.parts, [](const Part& part) { return part.present == Presence::kMissing; });
  std::vector<TreeNode> nodes;
  nodes.reserve(state.parts.size());
  for (const Part& part : state.parts) nodes.push_back(part.node);
  state.tree = SumOf(nodes);
}

const TreeSum* PartialGradients::SumOf(const std::vector<TreeNode>& nodes) {
  const auto found = std::ranges::find(other_sums_, nodes, &OtherSum::nodes);
  if (found != other_sums_.end()) return found->tree.get();
  other_sums_.push_back({nodes, std::make_unique<TreeSum>(nodes, slices_)});
  return other_sums_.back().tree.get();
}

ChunkGradient PartialGradients::PartsOf(size_t chunk) const {
  ChunkGradient gradient{.tree = states_[chunk].tree, .type = type_, .parts = {}};
  for (const Part& part : states_[chunk].parts) {
    gradient.parts.push_back(part.present == Presence::kHere ? part.payload.data : nullptr);
  }
  return gradient;
}

// Who pushed what stays known.
void PartialGradients::Release(size_t chunk) {
  for (Part& part : states_[chunk].parts) part.payload = {};
}

uint32_t PartialGradients::RankOf(size_t chunk, size_t part) const {
  return states_[chunk].parts[part].rank;
}

}  // namespace muster
