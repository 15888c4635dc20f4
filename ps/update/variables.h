// The master variables of a job and all that goes with them from step to step: weights, optimizer
// state, moving average, the count of updates. Together with the step they are what a run is: all
// else is a function of config, step and seed.
//
// Weights lie in two buffers: an update reads one, v mod 2, and writes the other, so that W(v) is
// whole until the first update of step v + 1, whatever becomes of step v. State and average are
// changed in place, or, with keep_previous, lie in two buffers as well: in u mod 2 after u updates,
// since a skipped step leaves them as they are.
//
// Owner: the aggregator. Ranges of chunks are read and written by the threads that it gives them
// to.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/base/memory.h"
#include "common/base/shared_memory.h"
#include "common/graph/variable_layout.h"
#include "common/link/wire_type.h"
#include "common/model/hash_variables.h"
#include "common/plan/chunks.h"

namespace muster {

struct VariablesOptions {
  size_t state_arenas = 0;  // of the optimizer, at most 2
  bool average = false;     // with optimizer.ema_decay
  // State and average of before an update are kept, too: what belongs to W(v) is whole in any step.
  // Costs their memory again, and the update of large models a tenth (docs/RESULTS.md).
  bool keep_previous = false;
  WireType wire_type = wire::FP32;
  uint64_t seed = 0;
  // All of it is read from a checkpoint: W(0), which takes longer to work out, is not.
  bool restored = false;
};

class Variables {
 public:
  // W(0) is InitializeWeights(layout, seed), which is the average, too; the state is zeros, and if
  // it is to be restored, so is all else.
  // `layout` outlives this.
  Variables(const VariableLayout& layout, const VariablesOptions& options);

  // Weights(0) has been changed: the average starts there, too.
  void StartFromWeights();

  const VariableLayout& layout() const { return layout_; }
  WireType wire_type() const { return wire_type_; }
  size_t state_arenas() const { return state_arenas_; }
  bool has_average() const { return average_[0].floats().data() != nullptr; }

  // Steps that were not skipped.
  int64_t updates() const { return updates_; }
  void CountUpdate() { ++updates_; }
  // A run goes on: the count first; then, when weights, state and average have been read into their
  // places, what is made of them.
  void Restore(int64_t updates) { updates_ = updates; }
  void RestoreDerived(int64_t version);

  // Whole arenas. Of a version, or of a count of updates.
  std::span<float> Weights(int64_t version);
  std::span<const float> Weights(int64_t version) const;
  std::span<float> State(size_t i, int64_t updates) {
    return state_[i][StateBufferOf(updates)].floats();
  }
  std::span<const float> State(size_t i, int64_t updates) const {
    return state_[i][StateBufferOf(updates)].floats();
  }
  // Empty without an average.
  std::span<float> Average(int64_t updates) { return average_[StateBufferOf(updates)].floats(); }
  std::span<const float> Average(int64_t updates) const {
    return average_[StateBufferOf(updates)].floats();
  }
  // The average as workers evaluate it: a copy, which stays until the next evaluation.
  std::span<float> EvaluatedAverage();
  std::span<const float> EvaluatedAverage() const;

  // What travels, in 16 bits; empty with 32.
  std::span<uint16_t> HalfWeights(int64_t version) { return HalfBuffer(BufferOf(version)); }
  std::span<uint16_t> HalfAverage() { return HalfBuffer(kAverageBuffer); }
  // A chunk as it travels.
  std::span<const std::byte> WireWeights(int64_t version, const Chunk& chunk) const {
    return WireChunk(BufferOf(version), chunk);
  }
  std::span<const std::byte> WireAverage(const Chunk& chunk) const {
    return WireChunk(kAverageBuffer, chunk);
  }

  // Both weight buffers and, if there is one, the evaluated average, one after the
  // other: workers of this host read them there.
  SharedMemory& shared() { return shared_; }

  uint64_t HashWeights(int64_t version) const { return HashVariables(layout_, Weights(version)); }

 private:
  static constexpr size_t kAverageBuffer = 2;
  static size_t BufferOf(int64_t count) { return static_cast<size_t>(count % 2); }
  size_t StateBufferOf(int64_t updates) const { return keep_previous_ ? BufferOf(updates) : 0; }
  // Where it begins, in floats.
  size_t BeginOf(size_t buffer) const;
  std::span<float> SharedBuffer(size_t buffer) const;
  std::span<uint16_t> HalfBuffer(size_t buffer);
  std::span<const std::byte> WireChunk(size_t buffer, const Chunk& chunk) const;

  const VariableLayout& layout_;
  const WireType wire_type_;
  const size_t state_arenas_;
  const bool keep_previous_;
  int64_t updates_ = 0;
  SharedMemory shared_;
  AlignedArray<uint16_t> halves_;  // of shared_, as it travels; with 16 bits
  std::array<std::array<Arena, 2>, 2> state_;
  std::array<Arena, 2> average_;
};

}  // namespace muster
