// Vectors of eight floats as compiler vector types: AVX2 instructions if available, and portable
// code otherwise.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace muster::cpu {

constexpr int64_t kLanes = 8;
using FloatVec = float __attribute__((vector_size(32)));
using IntVec = int32_t __attribute__((vector_size(32)));
using ByteVec = uint8_t __attribute__((vector_size(8)));

template <typename Vec, typename T>
inline Vec Load(const T* from) {
  Vec vec;
  std::memcpy(&vec, from, sizeof(vec));
  return vec;
}
inline FloatVec LoadFloats(const float* from) { return Load<FloatVec>(from); }
inline void Store(float* to, FloatVec vec) { std::memcpy(to, &vec, sizeof(vec)); }
inline FloatVec Broadcast(float value) { return value - FloatVec{}; }

// Small integers are stored in bytes if they fit, else in 32 bits.
inline IntVec LoadIndices(const int32_t* from) { return Load<IntVec>(from); }
inline IntVec LoadIndices(const uint8_t* from) {
#ifdef __AVX2__
  // GCC 12 compiles the conversion below to eight loads and inserts instead of one instruction.
  return reinterpret_cast<IntVec>(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  return __builtin_convertvector(Load<ByteVec>(from), IntVec);
#endif
}
inline void StoreIndices(int32_t* to, IntVec vec) { std::memcpy(to, &vec, sizeof(vec)); }
inline void StoreIndices(uint8_t* to, IntVec vec) {
  const ByteVec bytes = __builtin_convertvector(vec, ByteVec);
  std::memcpy(to, &bytes, sizeof(bytes));
}

}  // namespace muster::cpu
