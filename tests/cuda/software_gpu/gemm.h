// Matrix products on the software GPU: plain loops over numbers rounded as on a GPU, summed in
// float.
#pragma once

#include <cuda_fp16.h>
#include <library_types.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "tests/cuda/software_gpu/stream.h"

namespace muster::software_gpu {

// Column-major, as in cuBLAS.
struct Matrix {
  void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t leading = 0;      // elements from one column to the next
  bool transposed = false;  // use the transpose of what is in memory
};

enum class Epilogue { kNone, kBias, kRelu, kReluBias };

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  float alpha = 1, beta = 0;
  Matrix a, b, c;
  // The old C: only its data pointer differs. Null: `c` itself.
  const void* before = nullptr;
  bool tf32 = false;
  Epilogue epilogue = Epilogue::kNone;
  const void* bias = nullptr;  // `m` values
  cudaDataType bias_type = CUDA_R_32F;
};

// Returns 0 for types that are unsupported here.
inline size_t SizeOf(cudaDataType type) {
  return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 0;
}
// Drops this many fraction bits: rounds to nearest, ties to even.
inline float RoundBits(float value, int dropped) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000) == 0x7f800000) return value;
  const uint32_t half = (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
  return std::bit_cast<float>((bits + half) >> dropped << dropped);
}
// Rounds to a fraction of 10 bits.
inline float RoundToTf32(float value) { return RoundBits(value, 13); }
inline float LoadNumber(const void* at, cudaDataType type, int64_t index) {
  if (type == CUDA_R_32F) return static_cast<const float*>(at)[index];
  const uint16_t half = static_cast<const uint16_t*>(at)[index];
  if (type == CUDA_R_16F) return __half2float(__ushort_as_half(half));
  return std::bit_cast<float>(uint32_t{half} << 16);
}
inline void StoreNumber(void* at, cudaDataType type, int64_t index, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(at)[index] = value;
  } else if (type == CUDA_R_16F) {
    static_cast<uint16_t*>(at)[index] = __half_as_ushort(__float2half_rn(value));
  } else {
    static_cast<uint16_t*>(at)[index] =
        static_cast<uint16_t>(std::bit_cast<uint32_t>(RoundBits(value, 16)) >> 16);
  }
}
// The address `elements` numbers after `data`.
inline void* Advance(const void* data, cudaDataType type, int64_t elements) {
  return const_cast<char*>(static_cast<const char*>(data)) +
         elements * static_cast<int64_t>(SizeOf(type));
}

// c = epilogue(alpha * a * b + beta * before). Checks its memory accesses.
void Gemm(const Work& work, const GemmArgs& args);

}  // namespace muster::software_gpu
