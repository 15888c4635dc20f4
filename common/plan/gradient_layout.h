// The position of a gradient in a worker's gradient memory. The memory is a sequence of gradient
// buffers, each of which holds the gradient of one subtree at a time, as assigned by an order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/memory.h"

namespace muster {

// The distance in floats between buffers that processes on one host share. Buffers share no pages,
// so that a GPU driver can lock the pages of each.
constexpr size_t SharedArenaFloats(size_t arena_floats) {
  constexpr size_t kPageFloats = kMostPage / sizeof(float);
  return (arena_floats + kPageFloats - 1) / kPageFloats * kPageFloats;
}

class GradientLayout {
 public:
  GradientLayout() = default;
  // `chunk_end`: the ends of the chunks of a buffer, ascending; the first one begins at 0. `used`:
  // how many buffers every step uses; the others, for repeated work, take memory when written.
  GradientLayout(std::vector<uint64_t> chunk_end, size_t arenas, size_t used)
      : chunk_end_(std::move(chunk_end)), arenas_(arenas), used_(used) {}

  struct Span {
    size_t begin = 0, count = 0;
    friend bool operator==(const Span&, const Span&) = default;
  };
  // The floats of one buffer in the memory.
  Span Arena(size_t arena) const {
    return {arena * SharedArenaFloats(arena_floats()), arena_floats()};
  }
  // The floats of a chunk within a buffer; empty if there is no such chunk.
  std::optional<Span> Chunk(uint32_t chunk) const;
  // The floats of a chunk in the memory; empty if there is no such chunk or buffer.
  std::optional<Span> Chunk(uint32_t chunk, uint32_t arena) const;

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
