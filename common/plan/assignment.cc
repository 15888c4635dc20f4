#include "common/plan/assignment.h"

namespace muster {

Assignment AssignEvenly(int64_t slices, uint32_t ranks) {
  Assignment assignment;
  assignment.slices = slices;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    assignment.nodes.push_back(Decompose(EvenPart(slices, ranks, rank), slices));
  }
  return assignment;
}

}  // namespace muster
