// Pooling. Forward uses one thread per output. Backward uses one thread per input, which adds the
// gradients of its outputs, so every gradient is written once, in a fixed order.
#include <cmath>
#include <limits>

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

struct Span {
  int begin, end;
};

// The inputs of output `o` along one axis; input i has index i - Start in the window.
__device__ inline int Start(int o, int stride, int pad) { return o * stride - pad; }
__device__ inline Span Inputs(int o, int kernel, int stride, int pad, int size) {
  const int start = Start(o, stride, pad);
  return {start > 0 ? start : 0, start + kernel < size ? start + kernel : size};
}
// The outputs of input `i`.
__device__ inline Span Outputs(int i, int kernel, const Divisor& stride, int pad, int size) {
  const auto last = static_cast<int>(stride.Quotient(static_cast<uint32_t>(i + pad)));
  const int before = i + pad - kernel;
  const int first =
      before < 0 ? 0 : static_cast<int>(stride.Quotient(static_cast<uint32_t>(before))) + 1;
  return {first < size ? first : size, last + 1 < size ? last + 1 : size};
}

// The numbers by which the kernels divide. A thread handles W channels of a pixel; the channels of
// a Place are packs.
struct PoolDivisors {
  PoolDivisors(const PoolShape& s, int width)
      : in(s.in_height, s.in_width, s.channels / width),
        out(s.out_height, s.out_width, s.channels / width),
        stride_height(s.stride_height),
        stride_width(s.stride_width) {}
  PlaceDivisors in, out;
  Divisor stride_height, stride_width;

  __device__ Span OutRows(const PoolShape& s, int row) const {
    return Outputs(row, s.kernel_height, stride_height, s.pad_top, s.out_height);
  }
  __device__ Span OutColumns(const PoolShape& s, int column) const {
    return Outputs(column, s.kernel_width, stride_width, s.pad_left, s.out_width);
  }
};
__device__ inline Span InRows(const PoolShape& s, int out_row) {
  return Inputs(out_row, s.kernel_height, s.stride_height, s.pad_top, s.in_height);
}
__device__ inline Span InColumns(const PoolShape& s, int out_column) {
  return Inputs(out_column, s.kernel_width, s.stride_width, s.pad_left, s.in_width);
}

template <int W, typename T, typename Index>
__global__ void MaxPoolKernel(PoolShape s, PoolDivisors divisors, const T* in, T* out, Index* index,
                              bool after_relu, uint32_t packs) {
  constexpr Index nowhere = std::numeric_limits<Index>::max();
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Place at = divisors.out.Of(i);
    const Span rows = InRows(s, at.row), columns = InColumns(s, at.column);
    float best[W];
    Pack<Index, W> places;
    for (int j = 0; j < W; ++j) {
      best[j] = -INFINITY;
      places.at[j] = nowhere;
    }
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int from = ((at.n * s.in_height + row) * s.in_width + column) * s.channels;
        const Pack<T, W> found = LoadPack<W>(in + from + at.channel * W);
        const auto place =
            static_cast<Index>((row - Start(at.row, s.stride_height, s.pad_top)) * s.kernel_width +
                               column - Start(at.column, s.stride_width, s.pad_left));
        for (int j = 0; j < W; ++j) {
          const float x = ToFloat(found.at[j]);
          if (!(x > best[j]) && x == x) continue;  // a NaN wins and stays
          best[j] = x;
          places.at[j] = place;
        }
      }
    }
    Pack<T, W> result;
    for (int j = 0; j < W; ++j) {
      result.at[j] = FromFloat<T>(best[j]);
      if (after_relu && !(best[j] > 0)) places.at[j] = nowhere;
    }
    StorePack<W>(out + i * W, result);
    if (index != nullptr) StorePack<W>(index + i * W, places);
  }
}

template <int W, typename T, typename Index>
__global__ void MaxPoolGradientKernel(PoolShape s, PoolDivisors divisors, const T* out_gradient,
                                      const Index* index, T* in_gradient, uint32_t packs) {
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Place at = divisors.in.Of(i);
    const Span rows = divisors.OutRows(s, at.row), columns = divisors.OutColumns(s, at.column);
    float sums[W] = {};
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int from =
            ((at.n * s.out_height + row) * s.out_width + column) * s.channels + at.channel * W;
        const int place = (at.row - Start(row, s.stride_height, s.pad_top)) * s.kernel_width +
                          at.column - Start(column, s.stride_width, s.pad_left);
        const Pack<Index, W> winners = LoadPack<W>(index + from);
        const Pack<T, W> gradients = LoadPack<W>(out_gradient + from);
        for (int j = 0; j < W; ++j) {
          if (static_cast<int>(winners.at[j]) == place) sums[j] += ToFloat(gradients.at[j]);
        }
      }
    }
    Pack<T, W> result;
    for (int j = 0; j < W; ++j) result.at[j] = FromFloat<T>(sums[j]);
    StorePack<W>(in_gradient + i * W, result);
  }
}

template <int W, typename T>
__global__ void AvgPoolKernel(PoolShape s, PoolDivisors divisors, const T* in, T* out,
                              uint32_t packs) {
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Place at = divisors.out.Of(i);
    const Span rows = InRows(s, at.row), columns = InColumns(s, at.column);
    float sums[W] = {};
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int from = ((at.n * s.in_height + row) * s.in_width + column) * s.channels;
        const Pack<T, W> found = LoadPack<W>(in + from + at.channel * W);
        for (int j = 0; j < W; ++j) sums[j] += ToFloat(found.at[j]);
      }
    }
    const int seen = (rows.end - rows.begin) * (columns.end - columns.begin);
    const float share = 1.0f / static_cast<float>(seen);
    Pack<T, W> result;
    for (int j = 0; j < W; ++j) result.at[j] = FromFloat<T>(sums[j] * share);
    StorePack<W>(out + i * W, result);
  }
}

template <int W, typename T>
__global__ void AvgPoolGradientKernel(PoolShape s, PoolDivisors divisors, const T* out_gradient,
                                      const T* relu_output, T* in_gradient, uint32_t packs) {
  for (uint32_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const Place at = divisors.in.Of(i);
    const Span rows = divisors.OutRows(s, at.row), columns = divisors.OutColumns(s, at.column);
    float sums[W] = {};
    for (int row = rows.begin; row < rows.end; ++row) {
      const Span seen_rows = InRows(s, row);
      for (int column = columns.begin; column < columns.end; ++column) {
        const Span seen_columns = InColumns(s, column);
        const int seen =
            (seen_rows.end - seen_rows.begin) * (seen_columns.end - seen_columns.begin);
        const float share = 1.0f / static_cast<float>(seen);
        const int from =
            ((at.n * s.out_height + row) * s.out_width + column) * s.channels + at.channel * W;
        const Pack<T, W> gradients = LoadPack<W>(out_gradient + from);
        for (int j = 0; j < W; ++j) sums[j] += ToFloat(gradients.at[j]) * share;
      }
    }
    Pack<T, W> result, output{};
    if (relu_output != nullptr) output = LoadPack<W>(relu_output + i * W);
    for (int j = 0; j < W; ++j) {
      const bool passes = relu_output == nullptr || ToFloat(output.at[j]) > 0;
      result.at[j] = FromFloat<T>(passes ? sums[j] : 0.0f);
    }
    StorePack<W>(in_gradient + i * W, result);
  }
}

template <typename T>
__global__ void GlobalAvgPoolKernel(const T* in, T* out, uint32_t pixels, Divisor channels,
                                    uint32_t count) {
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Divisor::Parts at = channels.Split(i);
    const T* const image = in + at.quotient * pixels * channels.of() + at.rest;
    float sum = 0;
#pragma unroll 8
    for (uint32_t pixel = 0; pixel < pixels; ++pixel) {
      sum += ToFloat(image[pixel * channels.of()]);
    }
    out[i] = FromFloat<T>(sum / static_cast<float>(pixels));
  }
}

template <typename T>
__global__ void GlobalAvgPoolGradientKernel(const T* out_gradient, T* in_gradient, Divisor pixels,
                                            Divisor channels, uint32_t count) {
  const float share = 1.0f / static_cast<float>(pixels.of());
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Divisor::Parts at = channels.Split(i);
    const uint32_t n = pixels.Quotient(at.quotient);
    in_gradient[i] = FromFloat<T>(ToFloat(out_gradient[n * channels.of() + at.rest]) * share);
  }
}

int InCount(const PoolShape& s) { return s.batch * s.in_height * s.in_width * s.channels; }
int OutCount(const PoolShape& s) { return s.batch * s.out_height * s.out_width * s.channels; }

}  // namespace

template <typename T, typename Index>
void MaxPool(const Target& target, const PoolShape& shape, const T* in, T* out, Index* index,
             bool after_relu) {
  const auto launch = [&](auto width) {
    LaunchOver(target, OutCount(shape) / width, MaxPoolKernel<width, T, Index>, shape,
               PoolDivisors(shape, width), in, out, index, after_relu, OutCount(shape) / width);
  };
  WithWidth(shape.channels, launch, in, out, index);
}

template <typename T, typename Index>
void MaxPoolGradient(const Target& target, const PoolShape& shape, const T* out_gradient,
                     const Index* index, T* in_gradient) {
  const auto launch = [&](auto width) {
    LaunchOver(target, InCount(shape) / width, MaxPoolGradientKernel<width, T, Index>, shape,
               PoolDivisors(shape, width), out_gradient, index, in_gradient,
               InCount(shape) / width);
  };
  WithWidth(shape.channels, launch, out_gradient, index, in_gradient);
}

template <typename T>
void AvgPool(const Target& target, const PoolShape& shape, const T* in, T* out) {
  const auto launch = [&](auto width) {
    LaunchOver(target, OutCount(shape) / width, AvgPoolKernel<width, T>, shape,
               PoolDivisors(shape, width), in, out, OutCount(shape) / width);
  };
  WithWidth(shape.channels, launch, in, out);
}

template <typename T>
void AvgPoolGradient(const Target& target, const PoolShape& shape, const T* out_gradient,
                     const T* relu_output, T* in_gradient) {
  const auto launch = [&](auto width) {
    LaunchOver(target, InCount(shape) / width, AvgPoolGradientKernel<width, T>, shape,
               PoolDivisors(shape, width), out_gradient, relu_output, in_gradient,
               InCount(shape) / width);
  };
  WithWidth(shape.channels, launch, out_gradient, relu_output, in_gradient);
}

template <typename T>
void GlobalAvgPool(const Target& target, const T* in, T* out, int batch, int pixels, int channels) {
  LaunchOver(target, int64_t{batch} * channels, GlobalAvgPoolKernel<T>, in, out, pixels,
             Divisor(channels), batch * channels);
}

template <typename T>
void GlobalAvgPoolGradient(const Target& target, const T* out_gradient, T* in_gradient, int batch,
                           int pixels, int channels) {
  const int64_t count = int64_t{batch} * pixels * channels;
  LaunchOver(target, count, GlobalAvgPoolGradientKernel<T>, out_gradient, in_gradient,
             Divisor(pixels), Divisor(channels), count);
}

#define MUSTER_INSTANTIATE_MAX(T, Index)                                              \
  template void MaxPool(const Target&, const PoolShape&, const T*, T*, Index*, bool); \
  template void MaxPoolGradient(const Target&, const PoolShape&, const T*, const Index*, T*);
#define MUSTER_INSTANTIATE(T)                                                             \
  MUSTER_INSTANTIATE_MAX(T, uint8_t)                                                      \
  MUSTER_INSTANTIATE_MAX(T, int32_t)                                                      \
  template void AvgPool(const Target&, const PoolShape&, const T*, T*);                   \
  template void AvgPoolGradient(const Target&, const PoolShape&, const T*, const T*, T*); \
  template void GlobalAvgPool(const Target&, const T*, T*, int, int, int);                \
  template void GlobalAvgPoolGradient(const Target&, const T*, T*, int, int, int);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
