// Convolutions whose groups have one input channel each, which is too thin for matrix products.
// Each input channel is read by group_filters() filters; a filter has a weight for each window
// position.
#include "worker/backend/cuda/column_sums.h"

namespace muster::cuda {
namespace {

// The numbers by which the kernels divide.
struct DepthwiseDivisors {
  explicit DepthwiseDivisors(const ConvShape& s)
      : in(s.in_height, s.in_width, s.in_channels),
        out(s.out_height, s.out_width, s.filters),
        multiplier(s.group_filters()),
        stride_height(s.stride_height),
        stride_width(s.stride_width) {}
  PlaceDivisors in, out;
  Divisor multiplier, stride_height, stride_width;
};

template <typename T>
__global__ void DepthwiseKernel(ConvShape s, DepthwiseDivisors divisors, const T* in,
                                const float* weights, const float* bias, bool relu, T* out,
                                uint32_t count) {
  const int taps = s.kernel_height * s.kernel_width;
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = divisors.out.Of(i);
    const auto channel =
        static_cast<int>(divisors.multiplier.Quotient(static_cast<uint32_t>(at.channel)));
    float sum = bias == nullptr ? 0.0f : bias[at.channel];
    for (int ky = 0; ky < s.kernel_height; ++ky) {
      const int y = at.row * s.stride_height - s.pad_top + ky;
      if (y < 0 || y >= s.in_height) continue;
      for (int kx = 0; kx < s.kernel_width; ++kx) {
        const int x = at.column * s.stride_width - s.pad_left + kx;
        if (x < 0 || x >= s.in_width) continue;
        const int pixel = (at.n * s.in_height + y) * s.in_width + x;
        sum = fmaf(ToFloat(in[pixel * s.in_channels + channel]),
                   weights[at.channel * taps + ky * s.kernel_width + kx], sum);
      }
    }
    out[i] = FromFloat<T>(relu && sum < 0 ? 0.0f : sum);
  }
}

template <typename T>
__global__ void DepthwiseInputGradientKernel(ConvShape s, DepthwiseDivisors divisors,
                                             const T* out_gradient, const float* weights,
                                             const T* relu_output, T* in_gradient, uint32_t count) {
  const auto multiplier = static_cast<int>(divisors.multiplier.of());
  const int taps = s.kernel_height * s.kernel_width;
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const Place at = divisors.in.Of(i);
    float sum = 0;
    for (int ky = 0; ky < s.kernel_height; ++ky) {
      const int up = at.row + s.pad_top - ky;
      if (up < 0) continue;
      const Divisor::Parts row = divisors.stride_height.Split(static_cast<uint32_t>(up));
      if (row.rest != 0 || static_cast<int>(row.quotient) >= s.out_height) continue;
      for (int kx = 0; kx < s.kernel_width; ++kx) {
        const int left = at.column + s.pad_left - kx;
        if (left < 0) continue;
        const Divisor::Parts column = divisors.stride_width.Split(static_cast<uint32_t>(left));
        if (column.rest != 0 || static_cast<int>(column.quotient) >= s.out_width) continue;
        const uint32_t pixel = (at.n * s.out_height + row.quotient) * s.out_width + column.quotient;
        for (int f = at.channel * multiplier; f < (at.channel + 1) * multiplier; ++f) {
          sum = fmaf(ToFloat(out_gradient[pixel * s.filters + f]),
                     weights[f * taps + ky * s.kernel_width + kx], sum);
        }
      }
    }
    const bool passes = relu_output == nullptr || ToFloat(relu_output[i]) > 0;
    in_gradient[i] = FromFloat<T>(passes ? sum : 0.0f);
  }
}

// The products for one window position. A row is an output pixel, a column is a filter.
template <typename T>
struct Products {
  ConvShape s;
  PlaceDivisors divisors;
  const T *in, *out_gradient;
  int ky, kx, multiplier, filter = 0;
  struct Loaded {
    T x, dy;
    bool inside;
  };
  __device__ void Begin(int of) {
    filter = of;
    in += filter / multiplier;
  }
  __device__ Loaded Load(uint32_t row) const {
    const Divisor::Parts line = divisors.width.Split(row);
    const Divisor::Parts image = divisors.height.Split(line.quotient);
    const int y = static_cast<int>(image.rest) * s.stride_height - s.pad_top + ky;
    const int x = static_cast<int>(line.rest) * s.stride_width - s.pad_left + kx;
    Loaded loaded;
    loaded.inside = y >= 0 && y < s.in_height && x >= 0 && x < s.in_width;
    if (!loaded.inside) return loaded;
    const int pixel = (static_cast<int>(image.quotient) * s.in_height + y) * s.in_width + x;
    loaded.x = in[pixel * s.in_channels];
    loaded.dy = out_gradient[row * static_cast<uint32_t>(s.filters) + filter];
    return loaded;
  }
  __device__ void Add(float* sums, uint32_t, const Loaded& loaded) const {
    if (loaded.inside) sums[0] = fmaf(ToFloat(loaded.x), ToFloat(loaded.dy), sums[0]);
  }
};

// blockIdx.z is the window position.
template <typename T>
__global__ void MUSTER_FOUR_BLOCKS DepthwisePartsKernel(ConvShape s, DepthwiseDivisors divisors,
                                                        const T* in, const T* out_gradient,
                                                        uint32_t rows, uint32_t part_rows,
                                                        double* scratch) {
  const int tap = static_cast<int>(blockIdx.z);
  SumPart<1, 8>(rows, part_rows, s.filters,
                scratch + static_cast<int64_t>(tap) * gridDim.y * s.filters,
                Products<T>{s, divisors.out, in, out_gradient, tap / s.kernel_width,
                            tap % s.kernel_width, static_cast<int>(divisors.multiplier.of())});
}

// One warp per weight.
__global__ void DepthwiseSumsKernel(const double* scratch, uint32_t parts, uint32_t filters,
                                    uint32_t taps, float* weights_gradient) {
  for (uint32_t i = ThreadInGrid() / 32; i < taps * filters; i += ThreadsOfGrid() / 32) {
    const uint32_t tap = i / filters, filter = i - tap * filters;
    const double* const sums = scratch + tap * parts * filters;
    const double sum = OverParts<1>(sums, parts, filters, 0, filter);
    if (Lane() == 0) weights_gradient[filter * taps + tap] = static_cast<float>(sum);
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
  LaunchOver(target, count, DepthwiseKernel<T>, shape, DepthwiseDivisors(shape), in, weights, bias,
             relu, out, count);
}

template <typename T>
void DepthwiseInputGradient(const Target& target, const ConvShape& shape, const T* out_gradient,
                            const float* weights, const T* relu_output, T* in_gradient) {
  const int64_t count = shape.batch * shape.in_elements();
  LaunchOver(target, count, DepthwiseInputGradientKernel<T>, shape, DepthwiseDivisors(shape),
             out_gradient, weights, relu_output, in_gradient, count);
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
  Launch(DepthwisePartsKernel<T>, grid, dim3(kBlock), target.stream, shape,
         DepthwiseDivisors(shape), in, out_gradient, static_cast<uint32_t>(parts.rows),
         static_cast<uint32_t>(parts.part_rows), scratch);
  LaunchWarps(target, int64_t{taps} * parts.channels, DepthwiseSumsKernel, scratch, parts.parts,
              parts.channels, taps, weights_gradient);
}

#define MUSTER_INSTANTIATE(T)                                                                    \
  template void Depthwise(const Target&, const ConvShape&, const T*, const float*, const float*, \
                          bool, T*);                                                             \
  template void DepthwiseInputGradient(const Target&, const ConvShape&, const T*, const float*,  \
                                       const T*, T*);                                            \
  template void DepthwiseWeightsGradient(const Target&, const ConvShape&, const T*, const T*,    \
                                         double*, float*);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
