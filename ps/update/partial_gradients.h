// The partial gradients of one step as they come, each the sum over one subtree of slices. Of every
// chunk they cover each slice once: only what an order asks for is added (ps/step/step_work.h).
//
// Owner: the aggregator, in the loop's thread.
#pragma once

#include <cstdint>
#include <memory>
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
  // `chunks` outlive this. Parts come as `type`.
  PartialGradients(std::span<const Chunk> chunks, WireType type);

  // A step of so many slices begins: nothing has come.
  void BeginStep(int64_t slices);
  // `empty`: the subtree holds no samples. `node` is one of the tree, and disjoint from all others
  // of the chunk. False: the payload has another size than the chunk.
  bool Add(uint32_t rank, size_t chunk, const TreeNode& node, bool empty, Payload payload);

  bool Complete(size_t chunk) const { return states_[chunk].slices == slices_; }
  struct Part {
    TreeNode node;
    uint32_t rank = 0;
    bool empty = false;
    Payload payload;
  };
  // What is there of a chunk, from left to right.
  const std::vector<Part>& parts(size_t chunk) const { return states_[chunk].parts; }
  // What is there of a complete chunk, to be added: valid until Release or the next step.
  ChunkGradient PartsOf(size_t chunk) const;
  // Lets go of the memory that a chunk's parts came in.
  void Release(size_t chunk);

 private:
  struct ChunkState {
    std::vector<Part> parts;        // from left to right
    int64_t slices = 0;             // that are here
    const TreeSum* tree = nullptr;  // adds the parts of a complete chunk
  };
  // The sum of what these subtrees bring.
  const TreeSum* SumOf(const std::vector<Part>& parts);

  const std::span<const Chunk> chunks_;
  const WireType type_;
  int64_t slices_ = 0;
  // The sums that were needed, the last one first: nearly all chunks come in the same subtrees.
  struct Sum {
    std::vector<TreeNode> nodes;
    std::unique_ptr<TreeSum> tree;
  };
  std::vector<Sum> sums_;
  std::vector<ChunkState> states_;
};

}  // namespace muster
