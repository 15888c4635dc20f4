// Collects the parts of each chunk's gradient and, when all are there, has them added and applied.
//
// Owner: the server's loop, which calls everything here. The arithmetic runs in the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/arena.h"
#include "common/chunks.h"
#include "common/graph.h"
#include "common/link/link.h"
#include "common/shared_memory.h"
#include "common/slices.h"
#include "ps/thread_pool.h"
#include "ps/tree_sum.h"
#include "ps/update.h"

namespace muster {

// Who pushes which subtree. One per part of every chunk.
struct ExpectedPart {
  TreeNode node;
  uint32_t rank;
};

class Aggregator {
 public:
  // Called in the loop's thread for every chunk of W(version) as soon as it is written.
  using Publish = std::function<void(int64_t version, size_t chunk)>;

  // Step v reads plane v mod 2 and writes the other one. W(0) is InitializeWeights(graph, seed).
  Aggregator(const Graph& graph, std::vector<Chunk> chunks, const config::Optimizer& optimizer,
             uint64_t seed, ThreadPool& pool, Publish publish);

  // Which parts make a gradient. Once, before the first step.
  void Expect(std::vector<ExpectedPart> parts, int64_t slices);

  // W(step) is complete; parts of its gradient may come from now on.
  void BeginStep(int64_t step);
  // Updates may begin: all losses of this step are in and finite.
  void AllowUpdates(float learning_rate);

  enum class Verdict { kAccepted, kRepeated, kUnknownChunk, kUnknownSubtree, kWrongSize };
  Verdict Add(uint32_t rank, size_t chunk, const TreeNode& node, bool empty, Payload payload);

  bool StepIsComplete() const { return updated_ == chunks_.size(); }
  // The ranks whose parts of this step are missing.
  std::vector<uint32_t> MissingRanks() const;

  // A chunk whose update gave a value that is not finite: "gradient of conv1/weights[12] from
  // rank 1", filled in once, by the first such chunk.
  struct Nonfinite {
    std::string what;
    std::optional<uint32_t> rank;  // none: each part was finite, the sum or the weight is not
  };
  const std::optional<Nonfinite>& nonfinite() const { return nonfinite_; }

  const std::vector<Chunk>& chunks() const { return chunks_; }
  std::span<const float> Weights(int64_t version) const { return Plane(version); }
  // The memory of both planes, one after the other.
  SharedMemory& planes() { return planes_; }
  std::span<const float> WeightsOf(int64_t version, size_t chunk) const;
  // XXH3-64 of all variables, without the padding between them.
  uint64_t HashWeights(int64_t version) const;

 private:
  struct ChunkState {
    std::vector<Payload> parts;
    std::vector<char> present;  // 0: missing, 1: here, 2: here and empty
    size_t count = 0;
    bool submitted = false;
  };

  std::span<float> Plane(int64_t version) const {
    const size_t floats = graph_.arena_floats();
    return planes_.writable_floats().subspan(static_cast<size_t>(version % 2) * floats, floats);
  }
  void SubmitReady();
  void Finish(size_t chunk, bool finite);
  Nonfinite Diagnose(size_t chunk) const;

  const Graph& graph_;
  const std::vector<Chunk> chunks_;
  const std::vector<DecaySegment> segments_;
  const config::Optimizer optimizer_;
  const Publish publish_;
  SharedMemory planes_;  // both; workers of this host read them there
  Arena momentum_;
  std::vector<ExpectedPart> expected_;
  std::unique_ptr<TreeSum> tree_;
  int64_t step_ = -1;
  bool updates_allowed_ = false;
  UpdateRule rule_;
  std::vector<ChunkState> states_;
  size_t running_ = 0;
  size_t updated_ = 0;
  std::optional<Nonfinite> nonfinite_;
  ThreadPool& pool_;
};

}  // namespace muster
