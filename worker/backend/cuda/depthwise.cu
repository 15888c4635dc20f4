// Convolutions whose groups have one input channel each, which is too thin for matrix products.
// Each input channel is read by group_filters() filters; a filter has a weight for each window
// position.
#include "worker/backend/cuda/column_sums.h"

namespace muster::cuda {
namespace {

template <typename T>
__global__ void DepthwiseKernel(ConvShape s, const T* in, const float* weights, const float* bias,
                                bool relu, T* out, int64_t count) {
  const int multiplier = s.group_filters(), taps = s.kernel_height * s.kernel_width;
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int filter = static_cast<int>(i % s.filters);
    int64_t rest = i / s.filters;
    const int out_x = static_cast<int>(rest % s.out_width);
    rest /= s.out_width;
    const int out_y = static_cast<int>(rest % s.out_height);
    const int64_t n = rest / s.out_height;
    float sum = bias == nullptr ? 0.0f : bias[filter];
    for (int ky = 0; ky < s.kernel_height; ++ky) {
      const int y = out_y * s.stride_height - s.pad_top + ky;
      if (y < 0 || y >= s.in_height) continue;
      for (int kx = 0; kx < s.kernel_width; ++kx) {
        const int x = out_x * s.stride_width - s.pad_left + kx;
        if (x < 0 || x >= s.in_width) continue;
        const int64_t pixel = (n * s.in_height + y) * s.in_width + x;
        sum = fmaf(ToFloat(in[pixel * s.in_channels + filter / multiplier]),
                   weights[filter * taps + ky * s.kernel_width + kx], sum);
      }
    }
    out[i] = FromFloat<T>(relu && sum < 0 ? 0.0f : sum);
  }
}

template <typename T>
__global__ void DepthwiseInputGradientKernel(ConvShape s, const T* out_gradient,
                                             const float* weights, const T* relu_output,
                                             T* in_gradient, int64_t count) {
  const int multiplier = s.group_filters(), taps = s.kernel_height * s.kernel_width;
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % s.in_channels);
    int64_t rest = i / s.in_channels;
    const int x = static_cast<int>(rest % s.in_width);
    rest /= s.in_width;
    const int y = static_cast<int>(rest % s.in_height);
    const int64_t n = rest / s.in_height;
    float sum = 0;
    for (int ky = 0; ky < s.kernel_height; ++ky) {
      const int up = y + s.pad_top - ky;
      if (up < 0 || up % s.stride_height != 0 || up / s.stride_height >= s.out_height) continue;
      for (int kx = 0; kx < s.kernel_width; ++kx) {
        const int left = x + s.pad_left - kx;
        if (left < 0 || left % s.stride_width != 0 || left / s.stride_width >= s.out_width) {
          continue;
        }
        const int64_t pixel =
            (n * s.out_height + up / s.stride_height) * s.out_width + left / s.stride_width;
        for (int f = channel * multiplier; f < (channel + 1) * multiplier; ++f) {
          sum = fmaf(ToFloat(out_gradient[pixel * s.filters + f]),
                     weights[f * taps + ky * s.kernel_width + kx], sum);
        }
      }
    }
    const bool passes = relu_output == nullptr || ToFloat(relu_output[i]) > 0;
    in_gradient[i] = FromFloat<T>(passes ? sum : 0.0f);
  }
}

struct NoShift {};
struct PrepareNoShift {
  __device__ NoShift operator()(int, int64_t) const { return {}; }
};
// Adds the product for one window position. A row is an output pixel, a column is a filter.
template <typename T>
struct AddProduct {
  ConvShape s;
  const T *in, *out_gradient;
  int ky, kx;
  __device__ void operator()(float* sums, int64_t row, int filter, NoShift) const {
    const int out_x = static_cast<int>(row % s.out_width);
    const int64_t line = row / s.out_width;
    const int y = static_cast<int>(line % s.out_height) * s.stride_height - s.pad_top + ky;
    const int x = out_x * s.stride_width - s.pad_left + kx;
    if (y < 0 || y >= s.in_height || x < 0 || x >= s.in_width) return;
    const int64_t pixel = (line / s.out_height * s.in_height + y) * s.in_width + x;
    sums[0] = fmaf(ToFloat(in[pixel * s.in_channels + filter / s.group_filters()]),
                   ToFloat(out_gradient[row * s.filters + filter]), sums[0]);
  }
};

// blockIdx.z is the window position.
template <typename T>
__global__ void DepthwisePartsKernel(ConvShape s, const T* in, const T* out_gradient,
                                     double* scratch) {
  const int tap = static_cast<int>(blockIdx.z);
  SumPart<1>(static_cast<int64_t>(s.batch) * s.out_pixels(), s.filters,
             scratch + static_cast<int64_t>(tap) * gridDim.y * s.filters, PrepareNoShift(),
             AddProduct<T>{s, in, out_gradient, tap / s.kernel_width, tap % s.kernel_width});
}

__global__ void DepthwiseSumsKernel(const double* scratch, int parts, int filters, int taps,
                                    float* weights_gradient) {
  for (int64_t i = ThreadInGrid(); i < static_cast<int64_t>(taps) * filters; i += ThreadsOfGrid()) {
    const int filter = static_cast<int>(i % filters), tap = static_cast<int>(i / filters);
    const double* const sums = scratch + static_cast<int64_t>(tap) * parts * filters;
    weights_gradient[static_cast<int64_t>(filter) * taps + tap] =
        static_cast<float>(OverParts<1>(sums, parts, filters, 0, filter));
  }
}

ColumnParts PartsOf(const ConvShape& shape) {
  return {shape.batch * shape.out_pixels(), shape.filters};
}
int TapsOf(const ConvShape& shape) { return shape.kernel_height * shape.kernel_width; }

}  // namespace

template <typename T>
void Depthwise(const Target& target, const ConvShape& shape, const T* in, const float* weights,
               const float* bias, bool relu, T* out) {
  const int64_t count = shape.batch * shape.out_pixels() * shape.filters;
  LaunchOver(target, count, DepthwiseKernel<T>, shape, in, weights, bias, relu, out, count);
}

template <typename T>
void DepthwiseInputGradient(const Target& target, const ConvShape& shape, const T* out_gradient,
                            const float* weights, const T* relu_output, T* in_gradient) {
  const int64_t count = shape.batch * shape.in_elements();
  LaunchOver(target, count, DepthwiseInputGradientKernel<T>, shape, out_gradient, weights,
             relu_output, in_gradient, count);
}

size_t DepthwiseScratchBytes(const ConvShape& shape) {
  return PartsOf(shape).scratch_bytes(1) * static_cast<size_t>(TapsOf(shape));
}

template <typename T>
void DepthwiseWeightsGradient(const Target& target, const ConvShape& shape, const T* in,
                              const T* out_gradient, double* scratch, float* weights_gradient) {
  const ColumnParts parts = PartsOf(shape);
  const int taps = TapsOf(shape);
  const dim3 grid(static_cast<unsigned>((parts.channels + kColumns - 1) / kColumns),
                  static_cast<unsigned>(parts.parts), static_cast<unsigned>(taps));
  Launch(DepthwisePartsKernel<T>, grid, dim3(kBlock), target.stream, shape, in, out_gradient,
         scratch);
  LaunchOver(target, int64_t{taps} * parts.channels, DepthwiseSumsKernel, scratch, parts.parts,
             parts.channels, taps, weights_gradient);
}

#define MUSTER_INSTANTIATE(T)                                                                    \
  template void Depthwise(const Target&, const ConvShape&, const T*, const float*, const float*, \
                          bool, T*);                                                             \
  template void DepthwiseInputGradient(const Target&, const ConvShape&, const T*, const float*,  \
                                       const T*, T*);                                            \
  template void DepthwiseWeightsGradient(const Target&, const ConvShape&, const T*, const T*,    \
                                         double*, float*);
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
