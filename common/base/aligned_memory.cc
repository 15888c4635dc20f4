#include "common/base/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace muster {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = 2 * kHugePage;  // less would waste up to half of what it takes

}  // namespace

void* AllocateAligned(size_t bytes) {
  const size_t alignment = bytes >= kLarge ? kHugePage : kCacheLine;
  const size_t rounded = std::max<size_t>(1, (bytes + alignment - 1) / alignment) * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) (void)::madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

}  // namespace muster
