#include "ps/stream_out.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace muster {

void StreamOut(const float* from, float* to, size_t count) {
#ifdef __SSE2__
  size_t i = 0;
  while (i < count && reinterpret_cast<uintptr_t>(to + i) % 32 != 0) {
    to[i] = from[i];
    ++i;
  }
#ifdef __AVX2__
  for (; i + 8 <= count; i += 8) _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
#else
  for (; i + 4 <= count; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#endif
  for (; i < count; ++i) to[i] = from[i];
#else
  std::memcpy(to, from, count * sizeof(float));
#endif
}

void FenceStreams() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace muster
