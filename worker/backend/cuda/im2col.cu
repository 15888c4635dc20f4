// Turns convolutions into matrix products: each output pixel's patch of the images becomes a row of
// a matrix. In the reverse direction, rows are added back to the images. Each group has its own
// matrix; the matrices are stored one after the other.
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// The numbers by which the kernels divide.
struct ColumnDivisors {
  ColumnDivisors(const ConvShape& s, int width)
      : group_packs(s.group_channels() / width),
        kernel_width(s.kernel_width),
        kernel_height(s.kernel_height),
        out_width(s.out_width),
        out_height(s.out_height),
        batch(s.batch),
        in(s.in_height, s.in_width, s.in_channels / width),
        stride_height(s.stride_height),
        stride_width(s.stride_width) {}
  Divisor group_packs, kernel_width, kernel_height, out_width, out_height, batch;
  PlaceDivisors in;  // its channels are packs
  Divisor stride_height, stride_width;
};

// One thread per pack of W channels of a patch.
template <int W, typename T>
__global__ void ImageToColumnsKernel(ConvShape s, ColumnDivisors divisors, const T* images,
                                     T* columns, uint32_t packs) {
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Divisor::Parts position = divisors.group_packs.Split(i);
    const Divisor::Parts kx = divisors.kernel_width.Split(position.quotient);
    const Divisor::Parts ky = divisors.kernel_height.Split(kx.quotient);
    const Divisor::Parts out_x = divisors.out_width.Split(ky.quotient);
    const Divisor::Parts out_y = divisors.out_height.Split(out_x.quotient);
    const Divisor::Parts n = divisors.batch.Split(out_y.quotient);
    const int y = static_cast<int>(out_y.rest * s.stride_height + ky.rest) - s.pad_top;
    const int x = static_cast<int>(out_x.rest * s.stride_width + kx.rest) - s.pad_left;
    Pack<T, W> pack;
    if (y >= 0 && y < s.in_height && x >= 0 && x < s.in_width) {
      const int pixel = (static_cast<int>(n.rest) * s.in_height + y) * s.in_width + x;
      const int channel =
          static_cast<int>((n.quotient * divisors.group_packs.of() + position.rest) * W);
      pack = LoadPack<W>(images + pixel * s.in_channels + channel);
    } else {
      for (int j = 0; j < W; ++j) pack.at[j] = FromFloat<T>(0.0f);
    }
    StorePack<W>(columns + i * W, pack);
  }
}

// One thread per pack of W channels of an input pixel. It adds the pack's occurrences in a fixed
// order.
template <int W, typename T>
__global__ void ColumnsToImageKernel(ConvShape s, ColumnDivisors divisors, const float* columns,
                                     const T* relu_output, T* images, uint32_t packs) {
  const uint32_t rows = s.batch * s.out_height * s.out_width;
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Place at = divisors.in.Of(i);
    const Divisor::Parts group = divisors.group_packs.Split(static_cast<uint32_t>(at.channel));
    float sums[W] = {};
    for (int ky = 0; ky < s.kernel_height; ++ky) {
      const int up = at.row + s.pad_top - ky;
      if (up < 0) continue;
      const Divisor::Parts out_y = divisors.stride_height.Split(static_cast<uint32_t>(up));
      if (out_y.rest != 0 || static_cast<int>(out_y.quotient) >= s.out_height) continue;
      for (int kx = 0; kx < s.kernel_width; ++kx) {
        const int left = at.column + s.pad_left - kx;
        if (left < 0) continue;
        const Divisor::Parts out_x = divisors.stride_width.Split(static_cast<uint32_t>(left));
        if (out_x.rest != 0 || static_cast<int>(out_x.quotient) >= s.out_width) continue;
        const uint32_t row = group.quotient * rows +
                             (at.n * s.out_height + out_y.quotient) * s.out_width + out_x.quotient;
        const uint32_t pack = (row * s.kernel_height * s.kernel_width + ky * s.kernel_width + kx) *
                                  divisors.group_packs.of() +
                              group.rest;
        const Pack<float, W> found = LoadPack<W>(columns + pack * W);
        for (int j = 0; j < W; ++j) sums[j] += found.at[j];
      }
    }
    Pack<T, W> result, output{};
    if (relu_output != nullptr) output = LoadPack<W>(relu_output + i * W);
    for (int j = 0; j < W; ++j) {
      const bool passes = relu_output == nullptr || ToFloat(output.at[j]) > 0;
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
    LaunchOver(target, count / W, ImageToColumnsKernel<W, T>, shape, ColumnDivisors(shape, W),
               images, columns, count / W);
  } else {
    LaunchOver(target, count, ImageToColumnsKernel<1, T>, shape, ColumnDivisors(shape, 1), images,
               columns, count);
  }
}

template <typename T>
void ColumnsToImage(const Target& target, const ConvShape& shape, const float* columns,
                    const T* relu_output, T* images) {
  constexpr int W = kWide<T>;
  const int64_t count = shape.batch * shape.in_elements();
  if (shape.group_channels() % W == 0) {
    LaunchOver(target, count / W, ColumnsToImageKernel<W, T>, shape, ColumnDivisors(shape, W),
               columns, relu_output, images, count / W);
  } else {
    LaunchOver(target, count, ColumnsToImageKernel<1, T>, shape, ColumnDivisors(shape, 1), columns,
               relu_output, images, count);
  }
}

#define MUSTER_INSTANTIATE(T)                                                  \
  template void ImageToColumns(const Target&, const ConvShape&, const T*, T*); \
  template void ColumnsToImage(const Target&, const ConvShape&, const float*, const T*, T*);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
