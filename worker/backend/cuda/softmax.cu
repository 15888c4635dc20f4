// Softmax over the channels of each pixel, with one warp per pixel.
#include <cmath>

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// The output is not finite if any input of the pixel is NaN or +infinity.
template <typename T>
__global__ void SoftmaxKernel(const T* in, T* out, int64_t pixels, int channels) {
  for (int64_t pixel = ThreadInGrid() / 32; pixel < pixels; pixel += ThreadsOfGrid() / 32) {
    const T* const x = in + pixel * channels;
    T* const y = out + pixel * channels;
    float largest = -INFINITY;
    for (int c = Lane(); c < channels; c += 32) largest = fmaxf(largest, ToFloat(x[c]));
    largest = WarpMax(largest);
    double sum = 0;
    for (int c = Lane(); c < channels; c += 32) sum += expf(ToFloat(x[c]) - largest);
    const auto scale = static_cast<float>(1 / WarpSum(sum));
    for (int c = Lane(); c < channels; c += 32) {
      y[c] = FromFloat<T>(expf(ToFloat(x[c]) - largest) * scale);
    }
  }
}

template <typename T>
__global__ void MUSTER_FOUR_BLOCKS SoftmaxGradientKernel(const T* out, const T* out_gradient,
                                                         T* in_gradient, int64_t pixels,
                                                         int channels) {
  for (int64_t pixel = ThreadInGrid() / 32; pixel < pixels; pixel += ThreadsOfGrid() / 32) {
    const T *const y = out + pixel * channels, *const dy = out_gradient + pixel * channels;
    T* const dx = in_gradient + pixel * channels;
    double sum = 0;
    for (int c = Lane(); c < channels; c += 32) {
      sum += static_cast<double>(ToFloat(dy[c])) * ToFloat(y[c]);
    }
    sum = WarpSum(sum);
    for (int c = Lane(); c < channels; c += 32) {
      dx[c] = FromFloat<T>(ToFloat(y[c]) * static_cast<float>(ToFloat(dy[c]) - sum));
    }
  }
}

}  // namespace

template <typename T>
void Softmax(const Target& target, const T* in, T* out, int64_t pixels, int channels) {
  LaunchWarps(target, pixels, SoftmaxKernel<T>, in, out, pixels, channels);
}

template <typename T>
void SoftmaxGradient(const Target& target, const T* out, const T* out_gradient, T* in_gradient,
                     int64_t pixels, int channels) {
  LaunchWarps(target, pixels, SoftmaxGradientKernel<T>, out, out_gradient, in_gradient, pixels,
              channels);
}

#define MUSTER_INSTANTIATE(T)                                       \
  template void Softmax(const Target&, const T*, T*, int64_t, int); \
  template void SoftmaxGradient(const Target&, const T*, const T*, T*, int64_t, int);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
