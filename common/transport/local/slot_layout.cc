#include "common/transport/local/slot_layout.h"

#include <algorithm>

namespace muster {

SlotLayout::SlotLayout(const wire::Welcome& welcome)
    : chunk_end(welcome.chunk_end().begin(), welcome.chunk_end().end()),
      parts(Decompose({welcome.slice_begin(), welcome.slice_end()}, welcome.slices())) {
  arena_floats = chunk_end.empty() ? 0 : chunk_end.back();
}

std::optional<SlotLayout::Span> SlotLayout::Chunk(uint32_t chunk) const {
  if (chunk >= chunk_end.size()) return std::nullopt;
  const size_t begin = chunk == 0 ? 0 : chunk_end[chunk - 1];
  return Span{begin, chunk_end[chunk] - begin};
}

std::optional<SlotLayout::Span> SlotLayout::Part(uint32_t chunk,
                                                 const wire::Subtree& subtree) const {
  const auto part =
      std::find(parts.begin(), parts.end(), TreeNode{subtree.level(), subtree.index()});
  std::optional<Span> span = Chunk(chunk);
  if (!span || part == parts.end()) return std::nullopt;
  span->begin += static_cast<size_t>(part - parts.begin()) * arena_floats;
  return span;
}

}  // namespace muster
