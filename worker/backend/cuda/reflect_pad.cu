// Reflection padding, with one thread per element.
#include "common/base/reflected.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// The position of an element of an image.
struct At {
  int sample, row, column, channel;
};
__device__ inline At PlaceOf(int64_t i, int height, int width, int channels) {
  const int64_t pixel = i / channels, row = pixel / width;
  return {static_cast<int>(row / height), static_cast<int>(row % height),
          static_cast<int>(pixel % width), static_cast<int>(i % channels)};
}

template <typename T>
__global__ void ReflectPadKernel(ReflectPadShape s, const T* in, T* out, int64_t count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const At at = PlaceOf(i, s.out_height(), s.out_width(), s.channels);
    const int64_t row = int64_t{at.sample} * s.height + Reflected(at.row - s.rows, s.height);
    const int64_t column = Reflected(at.column - s.columns, s.width);
    out[i] = in[(row * s.width + column) * s.channels + at.channel];
  }
}

template <typename T>
__global__ void ReflectPadGradientKernel(ReflectPadShape s, const T* out_gradient, T* in_gradient,
                                         int64_t count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const At at = PlaceOf(i, s.height, s.width, s.channels);
    const ReflectedPlaces rows = PlacesOf(at.row, s.height, s.rows);
    const ReflectedPlaces columns = PlacesOf(at.column, s.width, s.columns);
    float sum = 0;
    for (int j = 0; j < rows.count; ++j) {
      const int64_t row = int64_t{at.sample} * s.out_height() + rows.at[j];
      for (int k = 0; k < columns.count; ++k) {
        const int64_t pixel = row * s.out_width() + columns.at[k];
        sum += ToFloat(out_gradient[pixel * s.channels + at.channel]);
      }
    }
    in_gradient[i] = FromFloat<T>(sum);
  }
}

}  // namespace

template <typename T>
void ReflectPad(const Target& target, const ReflectPadShape& shape, const T* in, T* out) {
  const int64_t count =
      int64_t{shape.batch} * shape.out_height() * shape.out_width() * shape.channels;
  LaunchOver(target, count, ReflectPadKernel<T>, shape, in, out, count);
}

template <typename T>
void ReflectPadGradient(const Target& target, const ReflectPadShape& shape, const T* out_gradient,
                        T* in_gradient) {
  const int64_t count = int64_t{shape.batch} * shape.height * shape.width * shape.channels;
  LaunchOver(target, count, ReflectPadGradientKernel<T>, shape, out_gradient, in_gradient, count);
}

#define MUSTER_INSTANTIATE(T)                                                    \
  template void ReflectPad(const Target&, const ReflectPadShape&, const T*, T*); \
  template void ReflectPadGradient(const Target&, const ReflectPadShape&, const T*, T*);
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
