#include "worker/client/terms.h"

#include <algorithm>

namespace muster {

size_t Terms::LargestChunk() const {
  size_t largest = 0;
  for (const ChunkRange& chunk : chunks) largest = std::max(largest, chunk.size());
  return largest;
}

std::optional<Terms> ReadWelcome(const wire::Welcome& welcome, size_t arena_floats) {
  const bool sane = welcome.chunk_end_size() > 0 && welcome.train_samples() > 0 &&
                    welcome.global_batch() > 0 && welcome.slices() > 0 &&
                    welcome.first_step() >= 0 && welcome.slice_begin() <= welcome.slice_end() &&
                    welcome.slice_end() <= welcome.slices() &&
                    welcome.chunk_end(welcome.chunk_end_size() - 1) == arena_floats &&
                    std::is_sorted(welcome.chunk_end().begin(), welcome.chunk_end().end());
  if (!sane) return std::nullopt;
  Terms terms{.plan = {.train_samples = welcome.train_samples(),
                       .global_batch = welcome.global_batch(),
                       .total_steps = welcome.total_steps(),
                       .slices = welcome.slices()},
              .first_step = welcome.first_step(),
              .slices = {welcome.slice_begin(), welcome.slice_end()},
              .wire_type = welcome.tensor_type()};
  terms.parts = Decompose(terms.slices, terms.plan.slices);
  size_t begin = 0;
  for (const uint64_t end : welcome.chunk_end()) {
    terms.chunks.push_back({begin, end});
    begin = end;
  }
  return terms;
}

}  // namespace muster
