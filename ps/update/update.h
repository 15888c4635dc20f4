// The one pass over memory that ends a step for a chunk, block by block in the L1 cache:
//
//   tree sum of the parts → clip_value → finite check → weight decay → optimizer →
//   new weights, state and moving average, in place or into other buffers
//
// In a two-phase step the sums of all chunks come first (average_gradient.h), and this pass takes
// them from there.
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

// Weights larger than this are gone from the cache before a worker reads them, with the gradients
// and the optimizer's state that went through it after them: they are written past it.
inline constexpr size_t kStreamBytes = 8 << 20;

// The gradient of a chunk as it was pushed.
struct ChunkGradient {
  const TreeSum* tree = nullptr;
  WireType type = wire::FP32;      // of the parts
  std::vector<const void*> parts;  // each begins at the chunk's first value; null: no samples
};

// Everything one chunk's update reads and writes. All spans are whole arenas. Run by one thread;
// nobody else touches the chunk's ranges meanwhile.
struct ChunkUpdate {
  Chunk chunk;
  // The gradient: parts to be added, or, without a tree, sums that are finite and clipped already.
  ChunkGradient gradient;
  std::span<const float> averaged;
  UpdateRule rule;
  std::span<const Segment> segments;
  std::span<const float> weights;  // W(v)
  std::span<float> next_weights;   // W(v + 1), the other weight buffer
  // As many as Optimizer::state_arenas; each next one is the same memory, or another arena.
  std::array<std::span<const float>, 2> state;
  std::array<std::span<float>, 2> next_state;
  std::span<const float> average;  // empty without ema_decay
  std::span<float> next_average;   // the same memory, or another arena
  // The new average once more, for workers that evaluate it; empty in steps without that.
  std::span<float> evaluated_average;
  // What goes to workers in 16 bits: of the new weights and of evaluated_average. Empty with 32.
  std::span<uint16_t> wire_weights, wire_average;
  ChunkObserver* observer = nullptr;  // looks at what is trained, in some steps
  // Write what is new past the cache: faster where the arenas are larger than it.
  bool stream = false;
};

// True if the gradient and all new values are finite, rounded ones too. Weights, state and average
// of before stay as they are in any case.
bool ApplyUpdate(const ChunkUpdate& update);

}  // namespace muster
