// The partial gradients of one step as they come, each the sum over one subtree of slices. Of every
// chunk they cover each slice once: who comes first counts, and what overlaps it is refused. So a
// subtree that was lost can be given out again, as itself or as its descendants, and a chunk of
// it that comes after all changes nothing.
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
#include "ps/tree_sum.h"
#include "ps/update.h"

namespace muster {

class PartialGradients {
 public:
  // `chunks` outlive this. Parts come as `type`.
  PartialGradients(std::span<const Chunk> chunks, WireType type);

  // Which subtrees are to come, from the next step on, if nobody is lost.
  void Expect(const Assignment& assignment);
  // Forgets what has come.
  void BeginStep();

  // kCovered: some or all slices of the subtree are here already.
  enum class Result { kAccepted, kCovered, kUnknownChunk, kWrongSize };
  // `empty`: the subtree holds no samples. `node` is one of the tree.
  Result Add(uint32_t rank, size_t chunk, const TreeNode& node, bool empty, Payload payload);

  bool Complete(size_t chunk) const { return states_[chunk].slices == slices_; }
  // Whether some slice of the subtree is here.
  bool Overlaps(size_t chunk, const TreeNode& node) const;
  // How many slices it has, and how many of them are.
  int64_t SizeOf(const TreeNode& node) const { return Covers(node, slices_).size(); }
  int64_t SlicesOf(size_t chunk, const TreeNode& node) const;
  size_t parts_per_chunk() const { return expected_.size(); }
  // What is there of a complete chunk, to be added: valid until Release or the next step.
  ChunkGradient PartsOf(size_t chunk) const;
  // Lets go of the memory that a chunk's parts came in.
  void Release(size_t chunk);

  // Who pushed PartsOf(chunk).parts[i].
  uint32_t RankOf(size_t chunk, size_t part) const;

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  enum class Presence : char { kMissing, kHere, kEmpty };
  struct Part {
    TreeNode node;
    uint32_t rank = 0;
    Presence present = Presence::kMissing;
    Payload payload;
  };
  // Of a chunk: first the expected subtrees, in their order, then others.
  struct ChunkState {
    std::vector<Part> parts;
    bool others = false;
    int64_t slices = 0;             // that are here
    const TreeSum* tree = nullptr;  // adds the parts
  };
  // A chunk is complete with other subtrees than were expected.
  void EndOthers(ChunkState& state);
  // The sum of what these subtrees bring.
  const TreeSum* SumOf(const std::vector<TreeNode>& nodes);

  const std::span<const Chunk> chunks_;
  const WireType type_;
  int64_t slices_ = 0;
  std::vector<TreeNode> expected_;  // of every chunk
  std::unique_ptr<TreeSum> tree_;
  struct OtherSum {
    std::vector<TreeNode> nodes;
    std::unique_ptr<TreeSum> tree;
  };
  std::vector<OtherSum> other_sums_;  // of this step
  std::vector<ChunkState> states_;
};

}  // namespace muster
