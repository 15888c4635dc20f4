// Denormals make arithmetic up to a hundred times slower; gradients that small are noise.
#pragma once

#include <immintrin.h>

namespace muster {

// Sets flush-to-zero and denormals-are-zero for the calling thread. Every thread that does
// arithmetic on tensors calls this, so that bits do not depend on the thread.
inline void FlushDenormals() {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
}

}  // namespace muster
