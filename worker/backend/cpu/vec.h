// Vectors of eight floats as compiler vector types: AVX2 instructions if available, and portable
// code otherwise.
#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "worker/backend/cpu/bf16.h"

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
// Loads a float or a FloatVec from values in bfloat16.
template <typename Vec>
inline Vec Load(const Bf16* from) {
  if constexpr (sizeof(Vec) == sizeof(float)) {
    return *from;
  } else {
#ifdef __AVX2__
    const __m256i halves =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return reinterpret_cast<Vec>(_mm256_slli_epi32(halves, 16));
#else
    Vec vec;
    for (int64_t i = 0; i < kLanes; ++i) vec[i] = from[i];
    return vec;
#endif
  }
}
template <typename T>
inline FloatVec LoadFloats(const T* from) {
  return Load<FloatVec>(from);
}

inline void Store(float* to, float value) { *to = value; }
inline void Store(float* to, FloatVec vec) { std::memcpy(to, &vec, sizeof(vec)); }
inline void Store(Bf16* to, float value) { *to = value; }
inline void Store(Bf16* to, FloatVec vec) {
#ifdef __AVX2__
  const auto bits = reinterpret_cast<__m256i>(vec);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = reinterpret_cast<__m256i>(vec != vec);
  const __m256i halves = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, is_nan);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(to),
      _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
#else
  for (int64_t i = 0; i < kLanes; ++i) to[i] = vec[i];
#endif
}
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
