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

GradientLayout GradientLayoutOf(const wire::Welcome& welcome) {
  return {{welcome.chunk_end().begin(), welcome.chunk_end().end()},
          welcome.buffers(),
          static_cast<size_t>(welcome.subtree_size())};
}

}  // namespace muster
