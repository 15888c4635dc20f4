// Products of matrices on the software GPU: plain loops over numbers that are rounded as a card's
// would be, added up in float.
#pragma once

#include <library_types.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "tests/cuda/software_gpu/stream.h"

namespace muster::software_gpu {

// In memory by columns, as cuBLAS has it.
struct Matrix {
  void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t leading = 0;      // elements from one column to the next
  bool transposed = false;  // what is meant is the transpose of what is in memory
};

enum class Epilogue { kNone, kBias, kRelu, kReluBias };

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  float alpha = 1, beta = 0;
  Matrix a, b, c;
  // Only C as it was before; where null, `c` itself.
  const void* before = nullptr;
  bool tf32 = false;
  Epilogue epilogue = Epilogue::kNone;
  const void* bias = nullptr;  // m of them
  cudaDataType bias_type = CUDA_R_32F;
};

// 0: a type that is not known here.
inline size_t SizeOf(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 0;
}
// The number without so many bits of its fraction, to the nearest, ties to even.
inline float RoundBits(float value, int dropped) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000) == 0x7f800000) return value;
  const uint32_t half = (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return std::bit_cast<float>((bits + half) >> dropped << dropped);
}
// To 10 bits behind the point.
inline float RoundToTf32(float value) { return RoundBits(value, 13); }
inline float LoadNumber(const void* at, cudaDataType type, int64_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(at)[index];
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(at)[index]} << 16);
}
inline void StoreNumber(void* at, cudaDataType type, int64_t index, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(at)[index] = value;
  } else {
    static_cast<uint16_t*>(at)[index] =
        static_cast<uint16_t>(std::bit_cast<uint32_t>(RoundBits(value, 16)) >> 16);
  }
}
// So many numbers behind `data`.
inline void* Advance(const void* data, cudaDataType type, int64_t elements) {
  return const_cast<char*>(static_cast<const char*>(data)) +
         elements * static_cast<int64_t>(SizeOf(type));
}

// c = epilogue(alpha * a * b + beta * before). Checks what it reads and writes.
void Gemm(const Work& work, const GemmArgs& args);

}  // namespace muster::software_gpu
