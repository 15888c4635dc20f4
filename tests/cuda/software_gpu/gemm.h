// Matrix products on the software GPU: plain loops over numbers rounded as on a GPU, summed in
// float.
#pragma once

#include <cuda_fp16.h>
#include <library_types.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/cuda/software_gpu/library.h"

namespace muster::software_gpu {

// Column-major, as in cuBLAS.
struct Matrix {
  void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t leading = 0;      // elements from one column to the next
  bool transposed = false;  // use the transpose of what is in memory
  int64_t stride = 0;       // elements from one matrix of a batch to the next
};

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  float alpha = 1, beta = 0;
  Matrix a, b, c;
  int count = 1;  // of a batch
  bool tf32 = false;
  const void* bias = nullptr;  // `m` values of c's type, or null
  bool relu = false;
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

// Returns what the program has done wrong, or "".
std::string WrongProduct(const GemmArgs& args);
// Queues c = a * b * alpha + beta * c + bias, cut off at 0 with `relu`. It checks its memory
// accesses. Returns false if there is no such stream.
bool EnqueueGemm(cudaStream_t stream, const char* name, const GemmArgs& args,
                 const Workspace& workspace);

}  // namespace muster::software_gpu
