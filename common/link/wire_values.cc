#include "common/link/wire_values.h"

namespace muster {

Urgency UrgencyOf(const wire::WeightsChunk& weights) {
  return {.step = weights.version(), .average = weights.average(), .chunk = weights.chunk()};
}

Urgency UrgencyOf(const wire::GradientPart& part) {
  return {.step = part.step(), .chunk = part.chunk()};
}

TreeNode NodeOf(const wire::Subtree& subtree) { return {subtree.level(), subtree.index()}; }

GradientLayout GradientLayoutOf(const wire::Welcome& welcome) {
  return {{welcome.chunk_end().begin(), welcome.chunk_end().end()},
          Decompose({welcome.slice_begin(), welcome.slice_end()}, welcome.slices())};
}

}  // namespace muster
