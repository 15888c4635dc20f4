// The place of a gradient in a worker's gradient buffers: the buffers are arenas of floats, one
// after the other, and each holds the gradient of one subtree at a time. An order says which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/memory.h"

namespace muster {

// How far apart the arenas begin that processes of one host share. None has a page in common with
// another, so that the driver of a GPU can lock the pages of each.
constexpr size_t SharedArenaFloats(size_t arena_floats) {
  constexpr size_t kPageFloats = kMostPage / sizeof(float);
  return (arena_floats + kPageFloats - 1) / kPageFloats * kPageFloats;
}

class GradientLayout {
 public:
  GradientLayout() = default;
  // `chunk_end`: where each chunk of the arena ends, ascending; the first one begins at 0.
  // `used`: of so many arenas those that every step uses; the others wait for work that is to be
  // done again, and take memory only then.
  GradientLayout(std::vector<uint64_t> chunk_end, size_t arenas, size_t used)
      : chunk_end_(std::move(chunk_end)), arenas_(arenas), used_(used) {}

  struct Span {
    size_t begin = 0, count = 0;
    friend bool operator==(const Span&, const Span&) = default;
  };
  // An arena in the memory.
  Span Arena(size_t arena) const {
    return {arena * SharedArenaFloats(arena_floats()), arena_floats()};
  }
  // A chunk's floats in an arena; empty if there is no such chunk.
  std::optional<Span> Chunk(uint32_t chunk) const;
  // … in the memory; empty if there is no such arena, either.
  std::optional<Span> Chunk(uint32_t chunk, uint32_t arena) const;

  size_t arena_floats() const { return chunk_end_.empty() ? 0 : chunk_end_.back(); }
  size_t arenas() const { return arenas_; }
  size_t used() const { return used_; }
  size_t bytes() const { return BytesOf(arenas_); }  // of all arenas
  size_t used_bytes() const { return BytesOf(used_); }

 private:
  size_t BytesOf(size_t arenas) const {
    return arenas * SharedArenaFloats(arena_floats()) * sizeof(float);
  }

  std::vector<uint64_t> chunk_end_;
  size_t arenas_ = 0, used_ = 0;
};

}  // namespace muster
