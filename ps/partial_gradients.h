// The partial gradients of one step as they come: of every chunk, one for each subtree of slices
// that somebody was given.
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

  // From the next step on.
  void Expect(const Assignment& assignment);
  // Forgets what has come.
  void BeginStep();

  enum class Result { kAccepted, kRepeated, kUnknownChunk, kUnknownSubtree, kWrongSize };
  // `empty`: the subtree holds no samples.
  Result Add(uint32_t rank, size_t chunk, const TreeNode& node, bool empty, Payload payload);

  bool Complete(size_t chunk) const { return states_[chunk].count == expected_.size(); }
  size_t parts_per_chunk() const { return expected_.size(); }
  // What is there of a chunk, to be added: valid until Release or the next step.
  ChunkGradient PartsOf(size_t chunk) const;
  // Lets go of the memory that a chunk's parts came in.
  void Release(size_t chunk) { states_[chunk].parts.clear(); }

  // Who pushed PartsOf(chunk).parts[i].
  uint32_t RankOf(size_t part) const { return expected_[part].rank; }
  // The ranks whose parts are missing.
  std::vector<uint32_t> MissingRanks() const;

 private:
  struct Expected {
    TreeNode node;
    uint32_t rank;
  };
  enum class Presence : char { kMissing, kHere, kEmpty };
  struct ChunkState {
    std::vector<Payload> parts;
    std::vector<Presence> present;
    size_t count = 0;
  };

  const std::span<const Chunk> chunks_;
  const WireType type_;
  std::vector<Expected> expected_;  // of every chunk, from left to right
  std::unique_ptr<TreeSum> tree_;
  std::vector<ChunkState> states_;
};

}  // namespace muster
