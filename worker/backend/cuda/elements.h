// How kernels access elements: they compute in float, while memory holds float,
// bfloat16 or half.
// Included only by .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "worker/backend/cuda/element.h"

namespace muster::cuda {

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Bf16 x) { return __bfloat162float(x); }
__device__ inline float ToFloat(Fp16 x) { return __half2float(x); }

// Rounds to nearest, ties to even.
template <typename T>
__device__ inline T FromFloat(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return __float2bfloat16_rn(x);
  } else {
    return __float2half_rn(x);
  }
}

// W adjacent elements, loaded and stored in the largest units that divide their size. Their address
// must be a multiple of that unit.
template <typename T, int W>
struct Pack {
  T at[W];
};
template <size_t kBytes>
using UnitOf = std::conditional_t<
    kBytes % 16 == 0, uint4,
    std::conditional_t<kBytes % 8 == 0, uint2,
                       std::conditional_t<kBytes % 4 == 0, uint32_t,
                                          std::conditional_t<kBytes % 2 == 0, uint16_t, uint8_t>>>>;

template <int W, typename T>
__device__ inline Pack<T, W> LoadPack(const T* from) {
  Pack<T, W> pack;
  using Unit = UnitOf<W * sizeof(T)>;
  constexpr int kUnits = sizeof(pack) / sizeof(Unit);
  Unit raw[kUnits];
  for (int i = 0; i < kUnits; ++i) raw[i] = reinterpret_cast<const Unit*>(from)[i];
  memcpy(&pack, raw, sizeof(pack));
  return pack;
}

template <int W, typename T>
__device__ inline void StorePack(T* to, const Pack<T, W>& pack) {
  using Unit = UnitOf<W * sizeof(T)>;
  constexpr int kUnits = sizeof(pack) / sizeof(Unit);
  Unit raw[kUnits];
  memcpy(raw, &pack, sizeof(pack));
  for (int i = 0; i < kUnits; ++i) reinterpret_cast<Unit*>(to)[i] = raw[i];
}

// The number of elements in 16 bytes.
template <typename T>
constexpr int kWide = 16 / static_cast<int>(sizeof(T));

inline bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

// Calls body(std::integral_constant<int, W>()) with the number of channels in a pack. `all`: what
// the kernel reads and writes.
template <typename Body, typename... Pointers>
void WithWidth(int channels, const Body& body, const Pointers*... all) {
  if (channels % 4 == 0 && (IsAligned(all) && ...)) {
    body(std::integral_constant<int, 4>());
  } else {
    body(std::integral_constant<int, 1>());
  }
}

// This thread's index in the grid and the number of threads, with which every kernel loops. 32 bits
// are enough for indices of elements (RequireCount), and divisions by them are three times as fast
// as with 64.
__device__ inline uint32_t ThreadInGrid() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline uint32_t ThreadsOfGrid() { return gridDim.x * blockDim.x; }

// Divides numbers below 2^31 with a multiplication (Granlund and Montgomery 1994, figure 4.1). Made
// by the host.
class Divisor {
 public:
  explicit Divisor(int of) : of_(static_cast<uint32_t>(of)) {
    while ((uint64_t{1} << shift_) < of_) ++shift_;
    factor_ = static_cast<uint32_t>((((uint64_t{1} << shift_) - of_) << 32) / of_ + 1);
  }
  // n = quotient * of + rest.
  struct Parts {
    uint32_t quotient, rest;
  };
  __device__ uint32_t Quotient(uint32_t n) const {
    return (static_cast<uint32_t>((uint64_t{factor_} * n) >> 32) + n) >> shift_;
  }
  __device__ Parts Split(uint32_t n) const {
    const uint32_t quotient = Quotient(n);
    return {quotient, n - quotient * of_};
  }
  constexpr uint32_t of() const { return of_; }  // constexpr because kernels also call it

 private:
  uint32_t of_, factor_, shift_ = 0;
};

// The position of an element of a channels-last tensor.
struct Place {
  int n, row, column, channel;
};
struct PlaceDivisors {
  PlaceDivisors(int height_of, int width_of, int channels_of)
      : height(height_of), width(width_of), channels(channels_of) {}
  __device__ Place Of(uint32_t i) const {
    const Divisor::Parts pixel = channels.Split(i), line = width.Split(pixel.quotient),
                         image = height.Split(line.quotient);
    return {static_cast<int>(image.quotient), static_cast<int>(image.rest),
            static_cast<int>(line.rest), static_cast<int>(pixel.rest)};
  }
  Divisor height, width, channels;
};

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
