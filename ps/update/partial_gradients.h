// The partial gradients of one step, each the sum over one subtree of slices. For every chunk they
// cover each slice at most once, because only ordered parts are added (ps/step/step_work.h).
//
// Owner: the aggregator, on the loop thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/link/link.h"
#include "common/plan/assignment.h"
#include "common/plan/chunks.h"
#include "ps/update/tree_sum.h"
#include "ps/update/update.h"

namespace muster {

class PartialGradients {
 public:
  // `chunks` must outlive this object. Parts have type `type`.
  PartialGradients(std::span<const Chunk> chunks, WireType type);

  // Starts a step with this number of slices.
  void BeginStep(int64_t slices);
  // Adds a part. `rank`: the only worker that computed it, if there is only one. `empty`: the
  // subtree has no samples. `node` must be disjoint from all other nodes of the chunk. Returns
  // false if the payload does not have the size of the chunk.
  bool Add(std::optional<uint32_t> rank, size_t chunk, const TreeNode& node, bool empty,
           Payload payload);

  bool Complete(size_t chunk) const { return states_[chunk].slices == slices_; }
  struct Part {
    TreeNode node;
    std::optional<uint32_t> rank;
    bool empty = false;
    Payload payload;
  };
  // The parts of a chunk that have arrived, from left to right.
  const std::vector<Part>& parts(size_t chunk) const { return states_[chunk].parts; }
  // The parts of a complete chunk, ready to be added. Valid until Release or the next step.
  ChunkGradient PartsOf(size_t chunk) const;
  // Frees the memory of a chunk's parts.
  void Release(size_t chunk);

 private:
  struct ChunkState {
    std::vector<Part> parts;        // from left to right
    int64_t slices = 0;             // number of slices that have arrived
    const TreeSum* tree = nullptr;  // adds the parts of a complete chunk
  };
  // Returns the TreeSum that adds these subtrees.
  const TreeSum* SumOf(const std::vector<Part>& parts);

  const std::span<const Chunk> chunks_;
  const WireType type_;
  int64_t slices_ = 0;
  // Recently used sums, most recent first. Nearly all chunks use the same subtrees.
  struct Sum {
    std::vector<TreeNode> nodes;
    std::unique_ptr<TreeSum> tree;
  };
  std::vector<Sum> sums_;
  std::vector<ChunkState> states_;
};

}  // namespace muster
