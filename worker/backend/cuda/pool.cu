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
__device__ inline Span Outputs(int i, int kernel, int stride, int pad, int size) {
  const int last = (i + pad) / stride, before = i + pad - kernel;
  const int first = before < 0 ? 0 : before / stride + 1;
  return {first < size ? first : size, last + 1 < size ? last + 1 : size};
}

// The position of element `i` of a tensor [batch, height, width, channels].
struct Place {
  int n, row, column, channel;
};
__device__ inline Place PlaceOf(int i, int height, int width, int channels) {
  const int pixel = i / channels, line = pixel / width;
  return {line / height, line % height, pixel % width, i % channels};
}

template <typename T, typename Index>
__global__ void MaxPoolKernel(PoolShape s, const T* in, T* out, Index* index, bool after_relu,
                              int count) {
  constexpr Index nowhere = std::numeric_limits<Index>::max();
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = PlaceOf(static_cast<int>(i), s.out_height, s.out_width, s.channels);
    const Span rows = Inputs(at.row, s.kernel_height, s.stride_height, s.pad_top, s.in_height);
    const Span columns = Inputs(at.column, s.kernel_width, s.stride_width, s.pad_left, s.in_width);
    float best = -INFINITY;
    Index place_of_best = nowhere;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int from = ((at.n * s.in_height + row) * s.in_width + column) * s.channels;
        const float x = ToFloat(in[from + at.channel]);
        if (!(x > best) && x == x) continue;  // a NaN wins and stays
        best = x;
        place_of_best =
            static_cast<Index>((row - Start(at.row, s.stride_height, s.pad_top)) * s.kernel_width +
                               column - Start(at.column, s.stride_width, s.pad_left));
      }
    }
    out[i] = FromFloat<T>(best);
    if (index != nullptr) index[i] = after_relu && !(best > 0) ? nowhere : place_of_best;
  }
}

template <typename T, typename Index>
__global__ void MaxPoolGradientKernel(PoolShape s, const T* out_gradient, const Index* index,
                                      T* in_gradient, int count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = PlaceOf(static_cast<int>(i), s.in_height, s.in_width, s.channels);
    const Span rows = Outputs(at.row, s.kernel_height, s.stride_height, s.pad_top, s.out_height);
    const Span columns =
        Outputs(at.column, s.kernel_width, s.stride_width, s.pad_left, s.out_width);
    float sum = 0;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int from =
            ((at.n * s.out_height + row) * s.out_width + column) * s.channels + at.channel;
        const int place = (at.row - Start(row, s.stride_height, s.pad_top)) * s.kernel_width +
                          at.column - Start(column, s.stride_width, s.pad_left);
        if (static_cast<int>(index[from]) == place) sum += ToFloat(out_gradient[from]);
      }
    }
    in_gradient[i] = FromFloat<T>(sum);
  }
}

template <typename T>
__global__ void AvgPoolKernel(PoolShape s, const T* in, T* out, int count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = PlaceOf(static_cast<int>(i), s.out_height, s.out_width, s.channels);
    const Span rows = Inputs(at.row, s.kernel_height, s.stride_height, s.pad_top, s.in_height);
    const Span columns = Inputs(at.column, s.kernel_width, s.stride_width, s.pad_left, s.in_width);
    float sum = 0;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int from = ((at.n * s.in_height + row) * s.in_width + column) * s.channels;
        sum += ToFloat(in[from + at.channel]);
      }
    }
    const int seen = (rows.end - rows.begin) * (columns.end - columns.begin);
    out[i] = FromFloat<T>(sum * (1.0f / static_cast<float>(seen)));
  }
}

template <typename T>
__global__ void AvgPoolGradientKernel(PoolShape s, const T* out_gradient, const T* relu_output,
                                      T* in_gradient, int count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = PlaceOf(static_cast<int>(i), s.in_height, s.in_width, s.channels);
    const Span rows = Outputs(at.row, s.kernel_height, s.stride_height, s.pad_top, s.out_height);
    const Span columns =
        Outputs(at.column, s.kernel_width, s.stride_width, s.pad_left, s.out_width);
    float sum = 0;
    for (int row = rows.begin; row < rows.end; ++row) {
      const Span seen_rows = Inputs(row, s.kernel_height, s.stride_height, s.pad_top, s.in_height);
      for (int column = columns.begin; column < columns.end; ++column) {
        const Span seen_columns =
            Inputs(column, s.kernel_width, s.stride_width, s.pad_left, s.in_width);
        const int seen =
            (seen_rows.end - seen_rows.begin) * (seen_columns.end - seen_columns.begin);
        const int from =
            ((at.n * s.out_height + row) * s.out_width + column) * s.channels + at.channel;
        sum += ToFloat(out_gradient[from]) * (1.0f / static_cast<float>(seen));
      }
    }
    const bool passes = relu_output == nullptr || ToFloat(relu_output[i]) > 0;
    in_gradient[i] = FromFloat<T>(passes ? sum : 0.0f);
  }
}

template <typename T>
__global__ void GlobalAvgPoolKernel(const T* in, T* out, int pixels, int channels, int count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int64_t n = i / channels, channel = i % channels;
    const T* const image = in + n * pixels * channels + channel;
    float sum = 0;
    for (int pixel = 0; pixel < pixels; ++pixel) {
      sum += ToFloat(image[static_cast<int64_t>(pixel) * channels]);
    }
    out[i] = FromFloat<T>(sum / static_cast<float>(pixels));
  }
}

template <typename T>
__global__ void GlobalAvgPoolGradientKernel(const T* out_gradient, T* in_gradient, int pixels,
                                            int channels, int64_t count) {
  const float share = 1.0f / static_cast<float>(pixels);
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int64_t n = i / channels / pixels, channel = i % channels;
    in_gradient[i] = FromFloat<T>(ToFloat(out_gradient[n * channels + channel]) * share);
  }
}

int InCount(const PoolShape& s) { return s.batch * s.in_height * s.in_width * s.channels; }
int OutCount(const PoolShape& s) { return s.batch * s.out_height * s.out_width * s.channels; }

}  // namespace

template <typename T, typename Index>
void MaxPool(const Target& target, const PoolShape& shape, const T* in, T* out, Index* index,
             bool after_relu) {
  LaunchOver(target, OutCount(shape), MaxPoolKernel<T, Index>, shape, in, out, index, after_relu,
             OutCount(shape));
}

template <typename T, typename Index>
void MaxPoolGradient(const Target& target, const PoolShape& shape, const T* out_gradient,
                     const Index* index, T* in_gradient) {
  LaunchOver(target, InCount(shape), MaxPoolGradientKernel<T, Index>, shape, out_gradient, index,
             in_gradient, InCount(shape));
}

template <typename T>
void AvgPool(const Target& target, const PoolShape& shape, const T* in, T* out) {
  LaunchOver(target, OutCount(shape), AvgPoolKernel<T>, shape, in, out, OutCount(shape));
}

template <typename T>
void AvgPoolGradient(const Target& target, const PoolShape& shape, const T* out_gradient,
                     const T* relu_output, T* in_gradient) {
  LaunchOver(target, InCount(shape), AvgPoolGradientKernel<T>, shape, out_gradient, relu_output,
             in_gradient, InCount(shape));
}

template <typename T>
void GlobalAvgPool(const Target& target, const T* in, T* out, int batch, int pixels, int channels) {
  LaunchOver(target, int64_t{batch} * channels, GlobalAvgPoolKernel<T>, in, out, pixels, channels,
             batch * channels);
}

template <typename T>
void GlobalAvgPoolGradient(const Target& target, const T* out_gradient, T* in_gradient, int batch,
                           int pixels, int channels) {
  const int64_t count = int64_t{batch} * pixels * channels;
  LaunchOver(target, count, GlobalAvgPoolGradientKernel<T>, out_gradient, in_gradient, pixels,
             channels, count);
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
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
