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

// What this worker computes of every step, until there is another one.
struct WorkShare {
  uint32_t id = 0;
  int64_t from_step = 0;
  std::vector<TreeNode> nodes;  // disjoint, from left to right
};

struct Terms {
  StepPlan plan;
  std::vector<ChunkRange> chunks;
  WorkShare share;    // the first one
  size_t arenas = 0;  // its gradient buffers
  WireType wire_type = wire::FP32;

  size_t LargestChunk() const;
};

// Empty: it does not fit an arena of so many floats, or contradicts itself.
std::optional<Terms> ReadWelcome(const wire::Welcome& welcome, size_t arena_floats);

// Empty: it is none of this plan and these gradient buffers.
std::optional<WorkShare> ReadShare(const wire::Assignment& assignment, const StepPlan& plan,
                                   size_t arenas);

}  // namespace muster
