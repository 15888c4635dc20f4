#include "common/plan/gradient_layout.h"

#include <algorithm>

namespace muster {

std::optional<GradientLayout::Span> GradientLayout::Chunk(uint32_t chunk) const {
  if (chunk >= chunk_end_.size()) return std::nullopt;
  const size_t begin = chunk == 0 ? 0 : chunk_end_[chunk - 1];
  return Span{begin, chunk_end_[chunk] - begin};
}

std::optional<GradientLayout::Span> GradientLayout::Part(uint32_t chunk,
                                                         const TreeNode& node) const {
  const auto part = std::find(parts_.begin(), parts_.end(), node);
  std::optional<Span> span = Chunk(chunk);
  if (!span || part == parts_.end()) return std::nullopt;
  span->begin += GradientBuffer(static_cast<size_t>(part - parts_.begin())).begin;
  return span;
}

}  // namespace muster
