// Dropout with the same random numbers as on the CPU: Philox of common/base/random.h.
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/map.h"
#include "worker/backend/cuda/philox.h"

namespace muster::cuda {
namespace {

// Each thread handles four elements of a sample, which share one block of random bits.
template <typename T>
__global__ void DropoutKernel(DropoutDraw draw, const int64_t* sample_ids, uint8_t* kept, T* to,
                              const T* from, int64_t quads, int elements) {
  const int quads_of_sample = (elements + 3) / 4;
  for (int64_t i = ThreadInGrid(); i < quads; i += ThreadsOfGrid()) {
    const int64_t sample = i / quads_of_sample;
    const int quad = static_cast<int>(i - sample * quads_of_sample);
    const auto id = static_cast<uint64_t>(sample_ids[sample]);
    const Bits bits = PhiloxBits({{draw.epoch, static_cast<uint32_t>(id),
                                   static_cast<uint32_t>(id >> 32), static_cast<uint32_t>(quad)}},
                                 draw.key[0], draw.key[1]);
    for (int j = 0; j < 4 && quad * 4 + j < elements; ++j) {
      const int64_t at = sample * elements + quad * 4 + j;
      const bool keep = ToUniform(bits.at[j]) >= draw.rate;
      kept[at] = keep ? 1 : 0;
      to[at] = FromFloat<T>(keep ? ToFloat(from[at]) * draw.scale : 0.0f);
    }
  }
}

template <typename T>
__global__ void DropoutGradientKernel(float scale, const uint8_t* kept, T* to, const T* gradient,
                                      const T* relu_output, int64_t count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const bool passes = kept[i] != 0 && (relu_output == nullptr || ToFloat(relu_output[i]) > 0);
    to[i] = FromFloat<T>(passes ? ToFloat(gradient[i]) * scale : 0.0f);
  }
}

}  // namespace

template <typename T>
void Dropout(const Target& target, const DropoutDraw& draw, const int64_t* sample_ids,
             uint8_t* kept, T* to, const T* from, int64_t batch, int elements) {
  const int64_t quads = batch * ((elements + 3) / 4);
  LaunchOver(target, quads, DropoutKernel<T>, draw, sample_ids, kept, to, from, quads, elements);
}

template <typename T>
void DropoutGradient(const Target& target, float scale, const uint8_t* kept, T* to,
                     const T* gradient, const T* relu_output, int64_t count) {
  LaunchOver(target, count, DropoutGradientKernel<T>, scale, kept, to, gradient, relu_output,
             count);
}

#define MUSTER_INSTANTIATE(T)                                                                      \
  template void Dropout(const Target&, const DropoutDraw&, const int64_t*, uint8_t*, T*, const T*, \
                        int64_t, int);                                                             \
  template void DropoutGradient(const Target&, float, const uint8_t*, T*, const T*, const T*,      \
                                int64_t);
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
