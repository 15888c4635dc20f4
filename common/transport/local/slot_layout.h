// Which floats of a worker's slot memory hold which part of its gradient.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/plan/slices.h"
#include "proto/wire.pb.h"

namespace muster {

// Both ends work it out from the Welcome: one arena of floats per subtree that the worker pushes.
struct SlotLayout {
  SlotLayout() = default;
  explicit SlotLayout(const wire::Welcome& welcome);

  struct Span {
    size_t begin = 0, count = 0;
  };
  // The chunk's floats in the arena; empty if there is no such chunk.
  std::optional<Span> Chunk(uint32_t chunk) const;
  // … of this part in the slot memory; empty if the worker pushes no such part.
  std::optional<Span> Part(uint32_t chunk, const wire::Subtree& subtree) const;
  size_t bytes() const { return parts.size() * arena_floats * sizeof(float); }

  size_t arena_floats = 0;
  std::vector<uint64_t> chunk_end;
  std::vector<TreeNode> parts;
};

}  // namespace muster
