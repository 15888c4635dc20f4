// Memory for tensors.
#pragma once

#include <cstddef>

namespace muster {

// 64-byte aligned, to be freed with std::free. Large memory lies, where the kernel has any, in
// pages of 2 MiB: passes over it miss the TLB less often. Throws std::bad_alloc.
void* AllocateAligned(size_t bytes);

}  // namespace muster
