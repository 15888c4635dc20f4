#include "common/base/malloc_policy.h"

#include <malloc.h>

namespace muster {

void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kLargestThreshold = 32 << 20;  // glibc's limit; chunks are up to 4 MiB
  (void)::mallopt(M_MMAP_THRESHOLD, kLargestThreshold);
  (void)::mallopt(M_TRIM_THRESHOLD, 2000 << 20);
#endif
}

}  // namespace muster
