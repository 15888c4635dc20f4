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

std::vector<TreeNode> NodesOf(const wire::Assignment& assignment) {
  std::vector<TreeNode> nodes;
  for (const wire::Subtree& subtree : assignment.subtree()) nodes.push_back(NodeOf(subtree));
  return nodes;
}

wire::Assignment AssignmentOf(const Assignment& assignment, uint32_t rank) {
  wire::Assignment message;
  message.set_id(assignment.id);
  message.set_from_step(assignment.from_step);
  for (const TreeNode& node : assignment.nodes[rank]) *message.add_subtree() = SubtreeOf(node);
  return message;
}

GradientLayout GradientLayoutOf(const wire::Welcome& welcome) {
  return {{welcome.chunk_end().begin(), welcome.chunk_end().end()},
          welcome.arenas(),
          static_cast<size_t>(welcome.assignment().subtree_size())};
}

}  // namespace muster
