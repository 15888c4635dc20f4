// Lets g++ compile CUDA C++. Included before the first line of every .cu source built for the
// software GPU. NVIDIA's headers define __global__ and __device__ as empty under g++; this file
// adds the rest, limited to what the backend may use: no floating-point atomics, no textures.
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
inline constexpr int warpSize = 32;

// A stream's thread runs the blocks of its kernels one after another, so thread-local variables can
// stand in for shared ones.
#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)

#define MUSTER_HERE ::muster::software_gpu::Where where = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(MUSTER_HERE) { ::muster::software_gpu::SyncThreads(where); }

inline void __syncwarp(unsigned mask = 0xffffffff, MUSTER_HERE) {
  using ::muster::software_gpu::WarpOperation;
  ::muster::software_gpu::WarpTogether(WarpOperation::kSync, mask, nullptr, 0, 0, 32, where);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, MUSTER_HERE) {
  using ::muster::software_gpu::WarpOperation;
  ::muster::software_gpu::WarpTogether(WarpOperation::kIndex, mask, &value, sizeof(T),
                                       static_cast<uint32_t>(lane), static_cast<uint32_t>(width),
                                       where);
  return value;
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32, MUSTER_HERE) {
  using ::muster::software_gpu::WarpOperation;
  ::muster::software_gpu::WarpTogether(WarpOperation::kDown, mask, &value, sizeof(T), distance,
                                       static_cast<uint32_t>(width), where);
  return value;
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, MUSTER_HERE) {
  using ::muster::software_gpu::WarpOperation;
  ::muster::software_gpu::WarpTogether(WarpOperation::kUp, mask, &value, sizeof(T), distance,
                                       static_cast<uint32_t>(width), where);
  return value;
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, MUSTER_HERE) {
  using ::muster::software_gpu::WarpOperation;
  ::muster::software_gpu::WarpTogether(WarpOperation::kXor, mask, &value, sizeof(T),
                                       static_cast<uint32_t>(lanes), static_cast<uint32_t>(width),
                                       where);
  return value;
}

inline unsigned __ballot_sync(unsigned mask, int predicate, MUSTER_HERE) {
  using ::muster::software_gpu::WarpOperation;
  unsigned value = predicate != 0;
  ::muster::software_gpu::WarpTogether(WarpOperation::kBallot, mask, &value, sizeof(value), 0, 32,
                                       where);
  return value;
}
inline int __any_sync(unsigned mask, int predicate, MUSTER_HERE) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, MUSTER_HERE) {
  return __ballot_sync(mask, predicate, where) == mask;
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __trap(MUSTER_HERE) { ::muster::software_gpu::Trap(where); }

// Integer atomics. Instrumentation would treat the compiler's builtins as plain accesses.
#define MUSTER_ATOMIC(NAME, TYPE, EXPRESSION)                                          \
  [[gnu::no_sanitize("thread")]] inline TYPE NAME(TYPE* at, TYPE value) {              \
    ::muster::software_gpu::CheckAtomic(at, sizeof(TYPE));                             \
    TYPE old = __atomic_load_n(at, __ATOMIC_RELAXED);                                  \
    while (!__atomic_compare_exchange_n(at, &old, EXPRESSION, false, __ATOMIC_RELAXED, \
                                        __ATOMIC_RELAXED)) {                           \
    }                                                                                  \
    return old;                                                                        \
  }
#define MUSTER_ATOMICS(TYPE)                                     \
  MUSTER_ATOMIC(atomicAdd, TYPE, static_cast<TYPE>(old + value)) \
  MUSTER_ATOMIC(atomicSub, TYPE, static_cast<TYPE>(old - value)) \
  MUSTER_ATOMIC(atomicMax, TYPE, old > value ? old : value)      \
  MUSTER_ATOMIC(atomicMin, TYPE, old < value ? old : value)      \
  MUSTER_ATOMIC(atomicOr, TYPE, old | value)                     \
  MUSTER_ATOMIC(atomicAnd, TYPE, old& value)                     \
  MUSTER_ATOMIC(atomicExch, TYPE, value)
MUSTER_ATOMICS(int)
MUSTER_ATOMICS(unsigned)
MUSTER_ATOMICS(unsigned long long)  // NOLINT(google-runtime-int): CUDA's type
#undef MUSTER_ATOMICS
#undef MUSTER_ATOMIC

// Functions that CUDA has beyond the C library's.
using std::max;
using std::min;
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __saturatef(float x) { return x > 0 ? std::min(x, 1.0f) : 0; }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>((static_cast<uint64_t>(x) * y) >> 32);
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <typename T>
T __ldg(const T* at) {
  return *at;
}
