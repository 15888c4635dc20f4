// How kernels access elements: they compute in float, while memory holds float or bfloat16.
// Included only by .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "worker/backend/cuda/element.h"

namespace muster::cuda {

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Bf16 x) { return __bfloat162float(x); }

// Rounds to nearest, ties to even.
template <typename T>
__device__ inline T FromFloat(float x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return x;
  } else {
    return __float2bfloat16_rn(x);
  }
}

// W adjacent elements, loaded and stored in units of 16 bytes if their size is a multiple of 16.
template <typename T, int W>
struct Pack {
  T at[W];
};

template <int W, typename T>
__device__ inline Pack<T, W> LoadPack(const T* from) {
  Pack<T, W> pack;
  constexpr int kBytes = W * static_cast<int>(sizeof(T));
  if constexpr (kBytes % 16 == 0) {
    uint4 raw[kBytes / 16];
    for (int i = 0; i < kBytes / 16; ++i) raw[i] = reinterpret_cast<const uint4*>(from)[i];
    memcpy(&pack, raw, sizeof(pack));
  } else {
    for (int i = 0; i < W; ++i) pack.at[i] = from[i];
  }
  return pack;
}

template <int W, typename T>
__device__ inline void StorePack(T* to, const Pack<T, W>& pack) {
  constexpr int kBytes = W * static_cast<int>(sizeof(T));
  if constexpr (kBytes % 16 == 0) {
    uint4 raw[kBytes / 16];
    memcpy(raw, &pack, sizeof(pack));
    for (int i = 0; i < kBytes / 16; ++i) reinterpret_cast<uint4*>(to)[i] = raw[i];
  } else {
    for (int i = 0; i < W; ++i) to[i] = pack.at[i];
  }
}

// The number of elements in 16 bytes.
template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

inline bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

// This thread's index in the grid and the number of threads, with which every kernel loops.
__device__ inline int64_t ThreadInGrid() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t ThreadsOfGrid() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

constexpr unsigned kAllLanes = 0xffffffffu;
__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % 32; }

// Sums x over a warp in a fixed tree. Every lane gets the sum.
template <typename T>
__device__ inline T WarpSum(T x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, distance);
  }
  return x;
}
__device__ inline float WarpMax(float x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  }
  return x;
}

}  // namespace muster::cuda
