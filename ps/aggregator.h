// Collects the parts of each chunk's gradient and, when all are there, has them added and applied:
// in one pass per chunk, or, where the whole gradient must be known first (clip_norm, SKIP_STEP),
// in two phases: all sums, then all updates.
//
// Owner: the server's loop, which calls everything here. The arithmetic runs in the pool.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/arena.h"
#include "common/base/shared_memory.h"
#include "common/graph/variable_layout.h"
#include "common/link/link.h"
#include "common/plan/chunks.h"
#include "common/plan/slices.h"
#include "ps/optimizer.h"
#include "ps/segments.h"
#include "ps/thread_pool.h"
#include "ps/tree_sum.h"

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

  // Step v reads plane v mod 2 and writes the other one. W(0) is InitializeWeights(layout, seed).
  // Memory, in arenas of 4 bytes per variable: 2 planes, the optimizer's state (Optimizer), 1 with
  // ema_decay, 1 for a two-phase step (and 1/8 of one with clip_norm); half of the planes and the
  // average again where `wire_type` has 16 bits.
  Aggregator(const VariableLayout& layout, std::vector<Chunk> chunks,
             const config::Optimizer& optimizer, const PassKernels& kernels,
             config::Run::OnNonfinite on_nonfinite, uint64_t seed, WireType wire_type,
             ThreadPool& pool, Publish publish);

  // Which parts make a gradient. Once, before the first step.
  void Expect(std::vector<ExpectedPart> parts, int64_t slices);

  // W(step) is complete; parts of its gradient may come from now on.
  void BeginStep(int64_t step);
  // Updates may begin: all losses of this step are in and finite.
  void AllowUpdates(double learning_rate);
  // All losses are in, and the gradient is not to be used: W(step + 1) will be W(step), and
  // nothing else changes.
  void SkipStep();

  enum class Verdict { kAccepted, kRepeated, kUnknownChunk, kUnknownSubtree, kWrongSize };
  Verdict Add(uint32_t rank, size_t chunk, const TreeNode& node, bool empty, Payload payload);

  bool StepIsComplete() const { return !averages() && done_ == chunks_.size(); }
  // The ranks whose parts of this step are missing.
  std::vector<uint32_t> MissingRanks() const;

  // The first value of this step that was not finite: "the gradient of conv1/weights[12] is nan".
  struct Nonfinite {
    std::string what;
    std::optional<uint32_t> rank;  // none: each part was finite, the sum or the weight is not
  };
  const std::optional<Nonfinite>& nonfinite() const { return nonfinite_; }
  // Whether this step leaves everything as it was, because of SkipStep or of SKIP_STEP and
  // nonfinite(). If nonfinite() is there and this is false, the step will never be complete.
  bool skips() const { return phase_ == Phase::kKeeping; }
  // The first phase of two is under way.
  bool averages() const { return phase_ == Phase::kAveraging; }

  // The instruction set of the arithmetic, as in server.instruction_set.
  const char* instruction_set() const { return optimizer_.kernels().name; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  std::span<const float> Weights(int64_t version) const { return Plane(version); }
  // The memory of both planes and, with ema_decay, of the average, one after the other.
  SharedMemory& planes() { return planes_; }
  // A chunk as it travels, in the wire's type.
  std::span<const std::byte> WireWeightsOf(int64_t version, size_t chunk) const;
  // Of the moving average of the newest version; with ema_decay only.
  std::span<const std::byte> WireAverageOf(size_t chunk) const;
  // XXH3-64 of all variables, without the padding between them.
  uint64_t HashWeights(int64_t version) const;

 private:
  struct ChunkState {
    std::vector<Payload> parts;
    std::vector<char> present;  // 0: missing, 1: here, 2: here and empty
    size_t count = 0;
  };
  // What is done with a chunk whose parts are all there.
  enum class Phase {
    kCollecting,  // nothing yet: losses are missing
    kOnePass,     // added and applied
    kAveraging,   // added
    kApplying,    // the sum is applied
    kKeeping,     // the weights are copied to the other plane
  };

  std::span<float> PlaneAt(size_t plane) const {
    const size_t floats = layout_.arena_floats();
    return planes_.writable_floats().subspan(plane * floats, floats);
  }
  std::span<float> Plane(int64_t version) const {
    return PlaneAt(static_cast<size_t>(version % 2));
  }
  std::span<float> AveragePlane() const {
    return optimizer_.keeps_average() ? PlaneAt(2) : std::span<float>();
  }
  std::span<uint16_t> WirePlaneAt(size_t plane);
  std::span<const std::byte> WireChunk(size_t plane, size_t chunk) const;
  void Enter(Phase phase);
  void SubmitReady();
  // The phase's work on a chunk. It may run in any thread, and is true if all values are finite.
  std::function<bool()> Job(size_t chunk);
  std::function<bool()> TracedJob(size_t chunk);  // the same with a span around it
  void Finish(size_t chunk, bool finite);
  void EndAveraging();
  Nonfinite Diagnose(size_t chunk) const;

  const VariableLayout& layout_;
  const std::vector<Chunk> chunks_;
  const Optimizer optimizer_;
  const std::vector<Segment> segments_;
  const bool may_skip_;  // SKIP_STEP
  const bool two_phase_;
  const Publish publish_;
  const WireType wire_type_;
  SharedMemory planes_;                 // workers of this host read them there
  AlignedArray<uint16_t> wire_planes_;  // the same planes as they travel; with 16 bits
  std::array<Arena, 2> state_;
  Arena averaged_;                    // two_phase_
  std::vector<double> line_squares_;  // of averaged_, with clip_norm
  std::vector<ExpectedPart> expected_;
  std::unique_ptr<TreeSum> tree_;
  int64_t step_ = -1;
  int64_t updates_ = 0;  // steps that were not skipped
  Phase phase_ = Phase::kCollecting;
  UpdateRule rule_;
  std::vector<ChunkState> states_;
  std::set<size_t> ready_;  // complete chunks that wait for a thread, in this phase
  size_t running_ = 0;
  size_t done_ = 0;  // chunks, in this phase
  std::optional<Nonfinite> nonfinite_;
  ThreadPool& pool_;
};

}  // namespace muster
