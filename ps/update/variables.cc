#include "ps/update/variables.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/plan/gradient_layout.h"
#include "ps/update/initializer.h"

namespace muster {

Variables::Variables(const VariableLayout& layout, const VariablesOptions& options)
    : layout_(layout),
      wire_type_(options.wire_type),
      state_arenas_(options.state_arenas),
      keep_previous_(options.keep_previous),
      shared_(SharedMemory::Create(
          "muster-weights",
          (options.average ? 3 : 2) * SharedArenaFloats(layout.arena_floats()) * sizeof(float),
          SharedMemory::Access::kReadWrite)) {
  MUSTER_CHECK(state_arenas_ <= state_.size());
  const size_t floats = layout.arena_floats();
  for (size_t buffer = 0; buffer < (keep_previous_ ? 2 : 1); ++buffer) {
    for (size_t i = 0; i < state_arenas_; ++i) state_[i][buffer] = Arena(floats);
    if (options.average) average_[buffer] = Arena(floats);
  }
  if (wire_type_ != wire::FP32) halves_ = AlignedArray<uint16_t>(shared_.floats().size());
  if (options.restored) return;
  InitializeWeights(layout, options.seed, Weights(0));
  StartFromWeights();
}

void Variables::StartFromWeights() {
  if (has_average()) std::ranges::copy(Weights(0), average_[0].floats().begin());
  if (wire_type_ == wire::FP32) return;
  (void)Narrow(wire_type_, Weights(0), HalfWeights(0).data());
}

// Also restores the copy of the average that workers need for an evaluation that is still due.
void Variables::RestoreDerived(int64_t version) {
  if (has_average()) std::ranges::copy(Average(updates_), EvaluatedAverage().begin());
  if (wire_type_ == wire::FP32) return;
  (void)Narrow(wire_type_, Weights(version), HalfWeights(version).data());
  if (has_average()) (void)Narrow(wire_type_, Average(updates_), HalfAverage().data());
}

size_t Variables::BeginOf(size_t buffer) const {
  return buffer * SharedArenaFloats(layout_.arena_floats());
}

std::span<float> Variables::SharedBuffer(size_t buffer) const {
  return shared_.writable_floats().subspan(BeginOf(buffer), layout_.arena_floats());
}

std::span<float> Variables::Weights(int64_t version) { return SharedBuffer(BufferOf(version)); }

std::span<const float> Variables::Weights(int64_t version) const {
  return SharedBuffer(BufferOf(version));
}

std::span<float> Variables::EvaluatedAverage() {
  return has_average() ? SharedBuffer(kAverageBuffer) : std::span<float>();
}

std::span<const float> Variables::EvaluatedAverage() const {
  return has_average() ? SharedBuffer(kAverageBuffer) : std::span<float>();
}

std::span<uint16_t> Variables::HalfBuffer(size_t buffer) {
  if (wire_type_ == wire::FP32 || (buffer == kAverageBuffer && !has_average())) return {};
  return halves_.values().subspan(BeginOf(buffer), layout_.arena_floats());
}

std::span<const std::byte> Variables::WireChunk(size_t buffer, const Chunk& chunk) const {
  MUSTER_CHECK(buffer != kAverageBuffer || has_average());
  const size_t begin = BeginOf(buffer) + chunk.begin;
  if (wire_type_ == wire::FP32) {
    return std::as_bytes(shared_.floats().subspan(begin, chunk.floats()));
  }
  return std::as_bytes(halves_.values().subspan(begin, chunk.floats()));
}

}  // namespace muster
