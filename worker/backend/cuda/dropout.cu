// Dropout with the same random numbers as on the CPU: Philox of common/base/random.h.
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/map.h"
#include "worker/backend/cuda/philox.h"

namespace muster::cuda {
namespace {

// Each thread handles four elements of a sample, which share one block of random bits. kWhole: a
// sample's elements are a multiple of four.
template <bool kWhole, typename T>
__global__ void DropoutKernel(DropoutDraw draw, const int64_t* sample_ids, uint8_t* kept, T* to,
                              const T* from, uint32_t quads, Divisor quads_of_sample,
                              int elements) {
  for (uint32_t i = ThreadInGrid(); i < quads; i += ThreadsOfGrid()) {
    const auto [sample, quad] = quads_of_sample.Split(i);
    const auto id = static_cast<uint64_t>(sample_ids[sample]);
    const Bits bits =
        PhiloxBits({{draw.epoch, static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), quad}},
                   draw.key[0], draw.key[1]);
    const uint32_t at = sample * static_cast<uint32_t>(elements) + quad * 4;
    const int own = min(4, elements - static_cast<int>(quad) * 4);
    Pack<T, 4> x{}, y;
    Pack<uint8_t, 4> keep;
    if constexpr (kWhole) {
      x = LoadPack<4>(from + at);
    } else {
      for (int j = 0; j < own; ++j) x.at[j] = from[at + j];
    }
    for (int j = 0; j < 4; ++j) {
      keep.at[j] = ToUniform(bits.at[j]) >= draw.rate ? 1 : 0;
      y.at[j] = FromFloat<T>(keep.at[j] != 0 ? ToFloat(x.at[j]) * draw.scale : 0.0f);
    }
    if constexpr (kWhole) {
      StorePack<4>(kept + at, keep);
      StorePack<4>(to + at, y);
    } else {
      for (int j = 0; j < own; ++j) {
        kept[at + j] = keep.at[j];
        to[at + j] = y.at[j];
      }
    }
  }
}

template <int W, typename T>
__global__ void DropoutGradientKernel(float scale, const uint8_t* kept, T* to, const T* gradient,
                                      const T* relu_output, uint32_t packs) {
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Pack<uint8_t, W> keep = LoadPack<W>(kept + i * W);
    Pack<T, W> dy = LoadPack<W>(gradient + i * W), y{};
    if (relu_output != nullptr) y = LoadPack<W>(relu_output + i * W);
    for (int j = 0; j < W; ++j) {
      const bool passes = keep.at[j] != 0 && (relu_output == nullptr || ToFloat(y.at[j]) > 0);
      dy.at[j] = FromFloat<T>(passes ? ToFloat(dy.at[j]) * scale : 0.0f);
    }
    StorePack<W>(to + i * W, dy);
  }
}

}  // namespace

template <typename T>
void Dropout(const Target& target, const DropoutDraw& draw, const int64_t* sample_ids,
             uint8_t* kept, T* to, const T* from, int64_t batch, int elements) {
  const int64_t quads = batch * ((elements + 3) / 4);
  const bool whole = elements % 4 == 0 && IsAligned(kept) && IsAligned(to) && IsAligned(from);
  LaunchOver(target, quads, whole ? DropoutKernel<true, T> : DropoutKernel<false, T>, draw,
             sample_ids, kept, to, from, quads, Divisor((elements + 3) / 4), elements);
}

template <typename T>
void DropoutGradient(const Target& target, float scale, const uint8_t* kept, T* to,
                     const T* gradient, const T* relu_output, int64_t count) {
  constexpr int W = kWide<T>;
  const bool wide = count % W == 0 && IsAligned(kept) && IsAligned(to) && IsAligned(gradient) &&
                    IsAligned(relu_output);
  LaunchOver(target, wide ? count / W : count,
             wide ? DropoutGradientKernel<W, T> : DropoutGradientKernel<1, T>, scale, kept, to,
             gradient, relu_output, wide ? count / W : count);
}

#define MUSTER_INSTANTIATE(T)                                                                      \
  template void Dropout(const Target&, const DropoutDraw&, const int64_t*, uint8_t*, T*, const T*, \
                        int64_t, int);                                                             \
  template void DropoutGradient(const Target&, float, const uint8_t*, T*, const T*, const T*,      \
                                int64_t);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
