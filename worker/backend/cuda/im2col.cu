// Turns convolutions into matrix products: each output pixel's patch of the images becomes a row of
// a matrix. In the reverse direction, rows are added back to the images. Each group has its own
// matrix; the matrices are stored one after the other.
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// One thread per pack of W channels of a patch.
template <int W, typename T>
__global__ void ImageToColumnsKernel(ConvShape s, const T* images, T* columns, int64_t packs) {
  const int group_packs = s.group_channels() / W;
  for (int64_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    int64_t rest = i / group_packs;
    const int channel = static_cast<int>(i % group_packs) * W;
    const int kx = static_cast<int>(rest % s.kernel_width);
    rest /= s.kernel_width;
    const int ky = static_cast<int>(rest % s.kernel_height);
    rest /= s.kernel_height;
    const int out_x = static_cast<int>(rest % s.out_width);
    rest /= s.out_width;
    const int out_y = static_cast<int>(rest % s.out_height);
    rest /= s.out_height;
    const int n = static_cast<int>(rest % s.batch), group = static_cast<int>(rest / s.batch);
    const int y = out_y * s.stride_height - s.pad_top + ky;
    const int x = out_x * s.stride_width - s.pad_left + kx;
    Pack<T, W> pack;
    if (y >= 0 && y < s.in_height && x >= 0 && x < s.in_width) {
      const int64_t pixel = (static_cast<int64_t>(n) * s.in_height + y) * s.in_width + x;
      pack = LoadPack<W>(images + pixel * s.in_channels + group * s.group_channels() + channel);
    } else {
      for (int j = 0; j < W; ++j) pack.at[j] = FromFloat<T>(0.0f);
    }
    StorePack<W>(columns + i * W, pack);
  }
}

// One thread per pack of W channels of an input pixel. It adds the pack's occurrences in a fixed
// order.
template <int W, typename T>
__global__ void ColumnsToImageKernel(ConvShape s, const float* columns, const T* relu_output,
                                     T* images, int64_t packs) {
  const int pixel_packs = s.in_channels / W;
  const int64_t rows = static_cast<int64_t>(s.batch) * s.out_pixels();
  for (int64_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % pixel_packs) * W;
    int64_t rest = i / pixel_packs;
    const int x = static_cast<int>(rest % s.in_width);
    rest /= s.in_width;
    const int y = static_cast<int>(rest % s.in_height);
    const int64_t n = rest / s.in_height;
    const int group = channel / s.group_channels(), own = channel % s.group_channels();
    float sums[W] = {};
    for (int ky = 0; ky < s.kernel_height; ++ky) {
      const int up = y + s.pad_top - ky;
      if (up < 0 || up % s.stride_height != 0 || up / s.stride_height >= s.out_height) continue;
      for (int kx = 0; kx < s.kernel_width; ++kx) {
        const int left = x + s.pad_left - kx;
        if (left < 0 || left % s.stride_width != 0 || left / s.stride_width >= s.out_width) {
          continue;
        }
        const int64_t row = group * rows + (n * s.out_height + up / s.stride_height) * s.out_width +
                            left / s.stride_width;
        const int64_t at = row * s.patch() + (ky * s.kernel_width + kx) * s.group_channels() + own;
        const Pack<float, W> pack = LoadPack<W>(columns + at);
        for (int j = 0; j < W; ++j) sums[j] += pack.at[j];
      }
    }
    Pack<T, W> result;
    for (int j = 0; j < W; ++j) {
      const bool passes = relu_output == nullptr || ToFloat(relu_output[i * W + j]) > 0;
      result.at[j] = FromFloat<T>(passes ? sums[j] : 0.0f);
    }
    StorePack<W>(images + i * W, result);
  }
}

}  // namespace

template <typename T>
void ImageToColumns(const Target& target, const ConvShape& shape, const T* images, T* columns) {
  constexpr int W = kWide<T>;
  const int64_t count =
      shape.groups * shape.batch * shape.out_pixels() * static_cast<int64_t>(shape.patch());
  if (shape.group_channels() % W == 0) {
    LaunchOver(target, count / W, ImageToColumnsKernel<W, T>, shape, images, columns, count / W);
  } else {
    LaunchOver(target, count, ImageToColumnsKernel<1, T>, shape, images, columns, count);
  }
}

template <typename T>
void ColumnsToImage(const Target& target, const ConvShape& shape, const float* columns,
                    const T* relu_output, T* images) {
  constexpr int W = kWide<T>;
  const int64_t count = shape.batch * shape.in_elements();
  if (shape.group_channels() % W == 0) {
    LaunchOver(target, count / W, ColumnsToImageKernel<W, T>, shape, columns, relu_output, images,
               count / W);
  } else {
    LaunchOver(target, count, ColumnsToImageKernel<1, T>, shape, columns, relu_output, images,
               count);
  }
}

#define MUSTER_INSTANTIATE(T)                                                  \
  template void ImageToColumns(const Target&, const ConvShape&, const T*, T*); \
  template void ColumnsToImage(const Target&, const ConvShape&, const float*, const T*, T*);
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
