#include "ps/update/partial_gradients.h"

#include <algorithm>

namespace muster {

PartialGradients::PartialGradients(std::span<const Chunk> chunks, WireType type)
    : chunks_(chunks), type_(type), states_(chunks.size()) {}

void PartialGradients::BeginStep(int64_t slices) {
  constexpr size_t kMostSums = 16;
  if (slices != slices_ || sums_.size() > kMostSums) sums_.clear();
  slices_ = slices;
  for (ChunkState& state : states_) {
    state.parts.clear();
    state.slices = 0;
    state.tree = nullptr;
  }
}

bool PartialGradients::Add(std::optional<uint32_t> rank, size_t chunk, const TreeNode& node,
                           bool empty, Payload payload) {
  const size_t want = empty ? 0 : chunks_[chunk].floats() * BytesOf(type_);
  if (payload.bytes != want) return false;
  ChunkState& state = states_[chunk];
  const int64_t begin = Covers(node, slices_).begin;
  const auto after = std::ranges::find_if(
      state.parts, [&](const Part& part) { return Covers(part.node, slices_).begin > begin; });
  state.parts.insert(after, {node, rank, empty, std::move(payload)});
  state.slices += Covers(node, slices_).size();
  if (Complete(chunk)) state.tree = SumOf(state.parts);
  return true;
}

const TreeSum* PartialGradients::SumOf(const std::vector<Part>& parts) {
  const auto found = std::ranges::find_if(sums_, [&](const Sum& sum) {
    return std::ranges::equal(sum.nodes, parts, {}, {}, &Part::node);
  });
  if (found != sums_.end()) {
    std::swap(*found, sums_.front());
    return sums_.front().tree.get();
  }
  std::vector<TreeNode> nodes;
  nodes.reserve(parts.size());
  for (const Part& part : parts) nodes.push_back(part.node);
  auto tree = std::make_unique<TreeSum>(nodes, slices_);
  sums_.insert(sums_.begin(), {std::move(nodes), std::move(tree)});
  return sums_.front().tree.get();
}

ChunkGradient PartialGradients::PartsOf(size_t chunk) const {
  ChunkGradient gradient{.tree = states_[chunk].tree, .type = type_, .parts = {}};
  for (const Part& part : states_[chunk].parts) {
    gradient.parts.push_back(part.empty ? nullptr : part.payload.data);
  }
  return gradient;
}

// Keeps the ranks of the parts for error messages.
void PartialGradients::Release(size_t chunk) {
  for (Part& part : states_[chunk].parts) part.payload = {};
}

}  // namespace muster
