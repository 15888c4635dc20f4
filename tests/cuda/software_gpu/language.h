// Lets g++ compile CUDA C++. Included before the first line of every .cu source built for the
// software GPU. NVIDIA's headers define __global__ and __device__ as empty under g++; this file
// adds the rest of what the backend uses, and no more: atomics, for example, do not compile.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/cuda/software_gpu/kernel.h"

#define threadIdx (::muster::software_gpu::ThreadIndex())
#define blockIdx (::muster::software_gpu::BlockIndex())
#define blockDim (::muster::software_gpu::BlockSize())
#define gridDim (::muster::software_gpu::GridSize())

// A stream's thread runs the blocks of its kernels one after another, so thread-local variables can
// stand in for shared ones.
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)

#define MUSTER_HERE ::muster::software_gpu::Where where = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(MUSTER_HERE) { ::muster::software_gpu::SyncThreads(where); }

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, MUSTER_HERE) {
  ::muster::software_gpu::ShuffleXor(mask, &value, sizeof(T), static_cast<uint32_t>(bits), where);
  return value;
}

// Functions that CUDA has beyond the C library's.
using std::max;
using std::min;
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
