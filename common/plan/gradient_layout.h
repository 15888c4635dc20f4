// Which floats of a worker's gradient buffer memory hold which part of its gradient: one arena of
// floats, a gradient buffer, per subtree that the worker pushes, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

class GradientLayout {
 public:
  GradientLayout() = default;
  // `chunk_end`: where each chunk of the arena ends, ascending; the first one begins at 0.
  // `parts`: the subtrees, a gradient buffer each.
  GradientLayout(std::vector<uint64_t> chunk_end, std::vector<TreeNode> parts)
      : chunk_end_(std::move(chunk_end)), parts_(std::move(parts)) {}

  struct Span {
    size_t begin = 0, count = 0;
    friend bool operator==(const Span&, const Span&) = default;
  };
  // The gradient buffer of parts[part] in the memory.
  Span GradientBuffer(size_t part) const { return {part * arena_floats(), arena_floats()}; }
  // A chunk's floats in the arena; empty if there is no such chunk.
  std::optional<Span> Chunk(uint32_t chunk) const;
  // … of this part, in the memory; empty if the worker pushes no such part.
  std::optional<Span> Part(uint32_t chunk, const TreeNode& node) const;

  size_t arena_floats() const { return chunk_end_.empty() ? 0 : chunk_end_.back(); }
  size_t gradient_buffers() const { return parts_.size(); }
  size_t bytes() const {
    return gradient_buffers() * arena_floats() * sizeof(float);
  }  // of all gradient buffers

 private:
  std::vector<uint64_t> chunk_end_;
  std::vector<TreeNode> parts_;
};

}  // namespace muster
