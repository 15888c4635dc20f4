// Applies one function to the same element of several tensors: the kernel behind all elementwise
// operations. Included only by .cu files.
#pragma once

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {

template <int W, typename F, typename T, typename... In>
__device__ inline void MapPack(const F& f, T* to, const Pack<In, W>&... packs) {
  Pack<T, W> result;
  for (int i = 0; i < W; ++i) result.at[i] = FromFloat<T>(f(ToFloat(packs.at[i])...));
  StorePack<W>(to, result);
}

// Not __restrict__: `to` may be any of `from`.
template <int W, typename F, typename T, typename... In>
__global__ void MapKernel(F f, T* to, int64_t count, const In*... from) {
  const int64_t whole = count / W;
  for (int64_t i = ThreadInGrid(); i < whole; i += ThreadsOfGrid()) {
    MapPack<W>(f, to + i * W, LoadPack<W>(from + i * W)...);
  }
  for (int64_t i = whole * W + ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    MapPack<1>(f, to + i, LoadPack<1>(from + i)...);
  }
}

// to[i] = f(from[i]...).
template <typename F, typename T, typename... In>
void Map(const Target& target, const F& f, T* to, int64_t count, const In*... from) {
  constexpr int W = kWide<T>;
  if (IsAligned(to) && (IsAligned(from) && ...)) {
    LaunchOver(target, (count + W - 1) / W, MapKernel<W, F, T, In...>, f, to, count, from...);
  } else {
    LaunchOver(target, count, MapKernel<1, F, T, In...>, f, to, count, from...);
  }
}

}  // namespace muster::cuda
