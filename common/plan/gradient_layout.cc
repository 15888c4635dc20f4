#include "common/plan/gradient_layout.h"

namespace muster {

std::optional<GradientLayout::Span> GradientLayout::Chunk(uint32_t chunk) const {
  if (chunk >= chunk_end_.size()) return std::nullopt;
  const size_t begin = chunk == 0 ? 0 : chunk_end_[chunk - 1];
  return Span{begin, chunk_end_[chunk] - begin};
}

std::optional<GradientLayout::Span> GradientLayout::Chunk(uint32_t chunk, uint32_t arena) const {
  std::optional<Span> span = Chunk(chunk);
  if (!span || arena >= arenas_) return std::nullopt;
  span->begin += Arena(arena).begin;
  return span;
}

}  // namespace muster
