#include "common/base/memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace muster {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = 2 * kHugePage;  // smaller blocks would waste up to half the memory

}  // namespace

void* AllocateAligned(size_t bytes, size_t least_alignment) {
  const size_t alignment = bytes >= kLarge ? kHugePage : least_alignment;
  const size_t rounded = std::max<size_t>(1, (bytes + alignment - 1) / alignment) * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) (void)::madvise(memory, rounded, MADV_HUGEPAGE);
  return memory;
}

void GiveBackPages(void* memory, size_t bytes, PagesOf whose) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
  if (end <= first) return;
  // Kernels that do not support this keep the pages.
  (void)::madvise(static_cast<std::byte*>(memory) + (first - begin), end - first,
                  whose == PagesOf::kShared ? MADV_REMOVE : MADV_DONTNEED);
}

void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kLargestThreshold = 32 << 20;  // glibc's limit; chunks are up to 4 MiB
  (void)::mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
  (void)::mallopt(M_TRIM_THRESHOLD, 2000 << 20);
#endif
}

}  // namespace muster
