// Copies parts of rows between matrices, for concat and its gradients.
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// All sizes are in packs.
template <int W, typename T>
__global__ void CopyRowsKernel(T* to, int to_stride, const T* from, int from_stride, int width,
                               int64_t packs) {
  for (int64_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const int64_t row = i / width;
    const int64_t at = i - row * width;
    StorePack<W>(to + (row * to_stride + at) * W, LoadPack<W>(from + (row * from_stride + at) * W));
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
               from_stride / W, width / W, rows * (width / W));
  } else {
    LaunchOver(target, rows * width, CopyRowsKernel<1, T>, to, to_stride, from, from_stride, width,
               rows * width);
  }
}

template void CopyRows(const Target&, float*, int, const float*, int, int, int64_t);
template void CopyRows(const Target&, Bf16*, int, const Bf16*, int, int, int64_t);

}  // namespace muster::cuda
