#include "common/link/wire_values.h"

namespace muster {

Urgency UrgencyOf(const wire::WeightsChunk& weights) {
  return {.step = weights.version(), .average = weights.average(), .chunk = weights.chunk()};
}

Urgency UrgencyOf(const wire::GradientPart& part) {
  return {.step = part.step(), .chunk = part.chunk()};
}

TreeNode NodeOf(const wire::Subtree& subtree) { return {subtree.level(), subtree.index()}; }

wire::Subtree SubtreeOf(const TreeNode& node) {
  wire::Subtree subtree;
  subtree.set_level(node.level);
  subtree.set_index(node.index);
  return subtree;
}

std::vector<TreeNode> NodesOf(const google::protobuf::RepeatedPtrField<wire::Subtree>& subtrees) {
  std::vector<TreeNode> nodes;
  for (const wire::Subtree& subtree : subtrees) nodes.push_back(NodeOf(subtree));
  return nodes;
}

std::optional<ScalarSums> ScalarsOf(const google::protobuf::RepeatedPtrField<wire::Scalar>& scalars,
                                    int64_t samples) {
  ScalarSums sums;
  if (scalars.empty()) return sums;
  if (scalars.size() > static_cast<int>(kMostScalars) || samples <= 0) return std::nullopt;
  for (const wire::Scalar& scalar : scalars) {
    const bool is_new = sums.try_emplace(scalar.name(), ScalarSum{scalar.sum(), samples}).second;
    if (!is_new || !IsScalarName(scalar.name())) return std::nullopt;
  }
  return sums;
}

GradientLayout GradientLayoutOf(const wire::Welcome& welcome) {
  return {{welcome.chunk_end().begin(), welcome.chunk_end().end()},
          welcome.buffers(),
          static_cast<size_t>(welcome.subtree_size())};
}

}  // namespace muster
