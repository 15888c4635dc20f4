// The variables of a job: weights, optimizer state, moving average and the number of updates.
// Together with the step they are the whole state of a run; everything else is a function of
// config, step and seed.
//
// Weights have two buffers: an update reads buffer v mod 2 and writes the other one, so W(v) stays
// intact until the first update of step v + 1. State and average are updated in place or, with
// keep_previous, also have two buffers, u mod 2 after u updates, because a skipped step does not
// change them.
//
// Owner: the aggregator. Its threads read and write the ranges of the chunks that it assigns.
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
  size_t state_arenas = 0;  // number of optimizer state buffers, at most 2
  bool average = false;     // keep a moving average (optimizer.ema_decay)
  // Also keep the previous state and average, so that everything that belongs to W(v) is intact at
  // any time. Doubles their memory and slows the update of large models by a tenth
  // (docs/RESULTS.md).
  bool keep_previous = false;
  WireType wire_type = wire::FP32;
  uint64_t seed = 0;
  // A checkpoint will be restored, so W(0) need not be computed.
  bool restored = false;
};

class Variables {
 public:
  // Without `restored`, W(0) and the average are InitializeWeights(layout, seed), and the state is
  // zero. `layout` must outlive this object.
  Variables(const VariableLayout& layout, const VariablesOptions& options);

  // Called after Weights(0) was changed. Resets everything that is derived from it.
  void StartFromWeights();

  const VariableLayout& layout() const { return layout_; }
  WireType wire_type() const { return wire_type_; }
  size_t state_arenas() const { return state_arenas_; }
  bool has_average() const { return average_[0].floats().data() != nullptr; }

  // The number of steps that were not skipped.
  int64_t updates() const { return updates_; }
  void CountUpdate() { ++updates_; }
  // To restore a run, call Restore, then read weights, state and average into their buffers, then
  // call RestoreDerived.
  void Restore(int64_t updates) { updates_ = updates; }
  void RestoreDerived(int64_t version);

  // Whole buffers: the weights of a version, and the state after a number of updates.
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
  // The copy of the average that workers evaluate; unchanged until the next evaluation.
  std::span<float> EvaluatedAverage();
  std::span<const float> EvaluatedAverage() const;

  // The 16-bit copies for workers; empty with 32 bits.
  std::span<uint16_t> HalfWeights(int64_t version) { return HalfBuffer(BufferOf(version)); }
  std::span<uint16_t> HalfAverage() { return HalfBuffer(kAverageBuffer); }
  // The bytes of a chunk to send.
  std::span<const std::byte> WireWeights(int64_t version, const Chunk& chunk) const {
    return WireChunk(BufferOf(version), chunk);
  }
  std::span<const std::byte> WireAverage(const Chunk& chunk) const {
    return WireChunk(kAverageBuffer, chunk);
  }

  // Both weight buffers and the evaluated average, if any, in that order. Workers on this host read
  // them in place.
  SharedMemory& shared() { return shared_; }

  uint64_t HashWeights(int64_t version) const { return HashVariables(layout_, Weights(version)); }

 private:
  static constexpr size_t kAverageBuffer = 2;
  static size_t BufferOf(int64_t count) { return static_cast<size_t>(count % 2); }
  size_t StateBufferOf(int64_t updates) const { return keep_previous_ ? BufferOf(updates) : 0; }
  // The start of a buffer, in floats.
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
  AlignedArray<uint16_t> halves_;  // 16-bit copy of shared_; only with a 16-bit wire type
  std::array<std::array<Arena, 2>, 2> state_;
  std::array<Arena, 2> average_;
};

}  // namespace muster
