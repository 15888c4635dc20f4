// Copies parts of rows between matrices, for concat and its gradients.
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// All sizes are in packs.
template <int W, typename T>
__global__ void CopyRowsKernel(T* to, uint32_t to_stride, const T* from, uint32_t from_stride,
                               Divisor width, uint32_t packs) {
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Divisor::Parts at = width.Split(i);
    StorePack<W>(to + (at.quotient * to_stride + at.rest) * W,
                 LoadPack<W>(from + (at.quotient * from_stride + at.rest) * W));
  }
}

}  // namespace

template <typename T>
void CopyRows(const Target& target, T* to, int to_stride, const T* from, int from_stride, int width,
              int64_t rows) {
  constexpr int W = kWide<T>;
  const bool wide = IsAligned(to) && IsAligned(from) && to_stride % W == 0 &&
                    from_stride % W == 0 && width % W == 0;
  if (wide) {
    LaunchOver(target, rows * (width / W), CopyRowsKernel<W, T>, to, to_stride / W, from,
               from_stride / W, Divisor(width / W), rows * (width / W));
  } else {
    LaunchOver(target, rows * width, CopyRowsKernel<1, T>, to, to_stride, from, from_stride,
               Divisor(width), rows * width);
  }
}

#define MUSTER_INSTANTIATE(T) \
  template void CopyRows(const Target&, T*, int, const T*, int, int, int64_t);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
