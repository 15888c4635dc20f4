// Computes the position of a gradient in a worker's gradient memory. The memory is a sequence of
// gradient buffers. Each buffer holds the gradient of one subtree at a time, as assigned by an
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/memory.h"

namespace muster {

// The distance in floats between shared buffers. No two buffers have a page in common, so that a
// GPU driver can lock the pages of each buffer.
constexpr size_t SharedArenaFloats(size_t arena_floats) {
  constexpr size_t kPageFloats = kMostPage / sizeof(float);
  return (arena_floats + kPageFloats - 1) / kPageFloats * kPageFloats;
}

class GradientLayout {
 public:
  GradientLayout() = default;
  // `chunk_end` has the ends of the chunks of a buffer in ascending order; the first chunk begins
  // at 0. `used` is the number of buffers that every step uses. The others are for repeated work
  // and occupy memory only when written.
  GradientLayout(std::vector<uint64_t> chunk_end, size_t arenas, size_t used)
      : chunk_end_(std::move(chunk_end)), arenas_(arenas), used_(used) {}

  struct Span {
    size_t begin = 0, count = 0;
    friend bool operator==(const Span&, const Span&) = default;
  };
  // The floats of one buffer, as a range of the memory.
  Span Arena(size_t arena) const {
    return {arena * SharedArenaFloats(arena_floats()), arena_floats()};
  }
  // The floats of a chunk, as a range of a buffer. Empty if there is no such chunk.
  std::optional<Span> Chunk(uint32_t chunk) const;
  // The floats of a chunk in one buffer, as a range of the memory. Empty if there is no such chunk
  // or buffer.
  std::optional<Span> Chunk(uint32_t chunk, uint32_t arena) const;

  // The layout of the memory that a relay on the server's host shares with the server: places for
  // the gradients and sums of a step, which occupy memory only when written.
  static constexpr size_t kRelayPlaces = 64;
  GradientLayout OfRelay() const { return {chunk_end_, kRelayPlaces, 0}; }

  size_t arena_floats() const { return chunk_end_.empty() ? 0 : chunk_end_.back(); }
  size_t arenas() const { return arenas_; }
  size_t used() const { return used_; }
  size_t bytes() const { return BytesOf(arenas_); }  // of all buffers
  size_t used_bytes() const { return BytesOf(used_); }

 private:
  size_t BytesOf(size_t arenas) const {
    return arenas * SharedArenaFloats(arena_floats()) * sizeof(float);
  }

  std::vector<uint64_t> chunk_end_;
  size_t arenas_ = 0, used_ = 0;
};

}  // namespace muster
