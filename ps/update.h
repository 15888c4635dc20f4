// The one pass over memory that ends a step for a chunk: sum of the parts in tree order, weight
// decay, optimizer, finite check, new weights into the other plane.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/chunks.h"
#include "common/graph.h"
#include "proto/config.pb.h"
#include "ps/tree_sum.h"

namespace muster {

struct UpdateRule {
  config::Optimizer::Type type = config::Optimizer::SGD;
  float learning_rate = 0;
  float momentum = 0;
};

// Floats [begin, end) of the arena share a weight decay.
struct DecaySegment {
  size_t begin, end;
  float weight_decay;
};
std::vector<DecaySegment> DecaySegments(const Graph& graph);

// Everything one chunk's update reads and writes. All spans are whole arenas, except the parts,
// which begin at the chunk's first float. Run by one pool thread; nobody else touches the chunk's
// ranges meanwhile.
struct ChunkUpdate {
  Chunk chunk;
  const TreeSum* tree;
  std::vector<const float*> parts;  // null: no samples
  UpdateRule rule;
  std::span<const DecaySegment> segments;
  std::span<const float> weights;  // W(v)
  std::span<float> next_weights;   // W(v + 1), the other plane
  std::span<float> momentum;       // in place; empty for SGD
};

// True if all new weights are finite. A gradient that is not finite makes a weight that is not.
bool ApplyUpdate(const ChunkUpdate& update);

}  // namespace muster
