// Memory for tensors.
#pragma once

#include <cstddef>

namespace muster {

constexpr size_t kCacheLine = 64;
constexpr size_t kMostPage = size_t{64} << 10;  // of any processor, huge pages apart

// To be freed with std::free. `least_alignment`: a power of two. Large memory lies, where the
// kernel has any, in pages of 2 MiB: passes over it miss the TLB less often. Throws std::bad_alloc.
void* AllocateAligned(size_t bytes, size_t least_alignment = kCacheLine);

// Gives the pages that lie wholly in this memory back to the system; they are zeros from then on,
// and take memory again when they are written. It stays allocated, and who still reads it reads the
// old values or zeros. kShared: of a memfd, for all that map it.
enum class PagesOf { kProcess, kShared };
void GiveBackPages(void* memory, size_t bytes, PagesOf whose);

}  // namespace muster
