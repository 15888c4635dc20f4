// Reflection padding, with one thread per element.
#include "common/base/reflected.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

template <typename T>
__global__ void ReflectPadKernel(ReflectPadShape s, PlaceDivisors divisors, const T* in, T* out,
                                 uint32_t count) {
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = divisors.Of(i);
    const int row = at.n * s.height + Reflected(at.row - s.rows, s.height);
    const int column = Reflected(at.column - s.columns, s.width);
    out[i] = in[(row * s.width + column) * s.channels + at.channel];
  }
}

template <typename T>
__global__ void ReflectPadGradientKernel(ReflectPadShape s, PlaceDivisors divisors,
                                         const T* out_gradient, T* in_gradient, uint32_t count) {
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = divisors.Of(i);
    const ReflectedPlaces rows = PlacesOf(at.row, s.height, s.rows);
    const ReflectedPlaces columns = PlacesOf(at.column, s.width, s.columns);
    float sum = 0;
    for (int j = 0; j < rows.count; ++j) {
      const int row = at.n * s.out_height() + static_cast<int>(rows.at[j]);
      for (int k = 0; k < columns.count; ++k) {
        const int pixel = row * s.out_width() + static_cast<int>(columns.at[k]);
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
  LaunchOver(target, count, ReflectPadKernel<T>, shape,
             PlaceDivisors(shape.out_height(), shape.out_width(), shape.channels), in, out, count);
}

template <typename T>
void ReflectPadGradient(const Target& target, const ReflectPadShape& shape, const T* out_gradient,
                        T* in_gradient) {
  const int64_t count = int64_t{shape.batch} * shape.height * shape.width * shape.channels;
  LaunchOver(target, count, ReflectPadGradientKernel<T>, shape,
             PlaceDivisors(shape.height, shape.width, shape.channels), out_gradient, in_gradient,
             count);
}

#define MUSTER_INSTANTIATE(T)                                                    \
  template void ReflectPad(const Target&, const ReflectPadShape&, const T*, T*); \
  template void ReflectPadGradient(const Target&, const ReflectPadShape&, const T*, T*);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
