// The fused update of a chunk: one pass over memory, in blocks that fit in the L1 cache:
//
//   tree sum of the parts → clip_value → finite check → weight decay → optimizer →
//   new weights, state and moving average, in place or into other buffers
//
// In a two-phase step, the sums of all chunks are computed first (average_gradient.h), and this
// pass reads them.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "common/plan/chunks.h"
#include "ps/update/observation_sums.h"
#include "ps/update/optimizer.h"
#include "ps/update/segments.h"
#include "ps/update/tree_sum.h"

namespace muster {

// Weights larger than this bypass the cache: gradients and optimizer state would evict them before
// a worker reads them.
inline constexpr size_t kStreamBytes = 8 << 20;

// The gradient parts of a chunk.
struct ChunkGradient {
  const TreeSum* tree = nullptr;
  WireType type = wire::FP32;      // type of the parts
  std::vector<const void*> parts;  // each starts at the chunk's first value; null: no samples
};

// The inputs and outputs of one chunk's update. All spans are whole buffers. Runs on one thread,
// which has exclusive access to the chunk's ranges.
struct ChunkUpdate {
  Chunk chunk;
  // The gradient: parts to add or, without a tree, sums that are already finite and clipped.
  ChunkGradient gradient;
  std::span<const float> averaged;
  UpdateRule rule;
  std::span<const Segment> segments;
  std::span<const float> weights;  // W(v)
  std::span<float> next_weights;   // W(v + 1), in the other weight buffer
  // Optimizer::state_arenas buffers. Each next_state is the same memory as state or another buffer.
  std::array<std::span<const float>, 2> state;
  std::array<std::span<float>, 2> next_state;
  std::span<const float> average;  // empty without ema_decay
  std::span<float> next_average;   // the same memory or another buffer
  // A copy of the new average for evaluation; empty if the step needs none.
  std::span<float> evaluated_average;
  // The 16-bit copies of next_weights and evaluated_average for workers. Empty with 32 bits.
  std::span<uint16_t> wire_weights, wire_average;
  ChunkObserver* observer = nullptr;  // observes trained variables in some steps
  // Write results past the cache; faster if the buffers exceed it.
  bool stream = false;
};

// Returns true if the gradient and all new values, including rounded ones, are finite. Always
// leaves the weights, state and average before the update intact.
bool ApplyUpdate(const ChunkUpdate& update);

}  // namespace muster
