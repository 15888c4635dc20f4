#include "worker/nn/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace muster {
namespace {

// A gap of a few cache lines keeps buffers of equal power-of-two sizes from starting at the same
// offset in a page, because such streams slow each other down.
constexpr size_t kAlign = 64, kGap = 192;

size_t Room(const Lifetime& buffer) { return (buffer.bytes + kAlign - 1) / kAlign * kAlign + kGap; }

bool Overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

size_t PlaceBuffers(std::vector<Lifetime>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  size_t total = 0;
  std::vector<size_t> placed;  // by offset
  for (const size_t next : order) {
    size_t offset = 0;
    for (const size_t other : placed) {
      if (!Overlap(buffers[next], buffers[other])) continue;
      if (offset + Room(buffers[next]) <= buffers[other].offset) break;
      offset = std::max(offset, buffers[other].offset + Room(buffers[other]));
    }
    buffers[next].offset = offset;
    total = std::max(total, offset + Room(buffers[next]));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](size_t at, size_t i) { return at < buffers[i].offset; }),
                  next);
  }
  return total;
}

}  // namespace muster
