// What Welcome says: the job, and this worker's share of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "proto/wire.pb.h"

namespace muster {

// A range of floats of the arena.
struct ChunkRange {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

struct Terms {
  StepPlan plan;
  int64_t first_step = 0;
  Range slices;                 // of this worker
  std::vector<TreeNode> parts;  // the subtrees that it pushes
  std::vector<ChunkRange> chunks;
  WireType wire_type = wire::FP32;

  size_t LargestChunk() const;
};

// Empty: it does not fit an arena of so many floats, or contradicts itself.
std::optional<Terms> ReadWelcome(const wire::Welcome& welcome, size_t arena_floats);

}  // namespace muster
