// Normalisation of each sample on its own; worker/backend/cpu/group_norm.cc has the formulas.
#include "worker/backend/cuda/column_sums.h"
#include "worker/backend/cuda/rows_walk.h"

namespace muster::cuda {
namespace {

// Groups with fewer values than this are summed by a warp, others by a block.
constexpr int64_t kValuesOfBlock = 2048;

// The numbers by which the kernels divide.
struct GroupDivisors {
  explicit GroupDivisors(const GroupShape& s) : width(s.width()), pixels(s.pixels) {}
  Divisor width, pixels;
};

constexpr uint32_t kLoads = 4;  // values that a thread loads before it adds the first

// Sums term.Of(term.Load(element, channel)) over the values of a group, in a fixed tree. Every
// thread of the warp or block gets the sum.
template <bool kBlockWide, typename Term>
__device__ inline double GroupSum(const GroupShape& s, const GroupDivisors& divisors,
                                  uint32_t group, const Term& term) {
  const uint32_t groups = s.groups, channels = s.channels, block = group / groups;
  const uint32_t first = (group - block * groups) * divisors.width.of();
  const uint32_t base = block * s.pixels * channels;
  const uint32_t thread = kBlockWide ? threadIdx.x : threadIdx.x % 32;
  double sum = 0;
  constexpr uint32_t kThreads = kBlockWide ? kBlock : 32;
  const auto values = static_cast<uint32_t>(s.values());
  for (uint32_t at = thread; at < values; at += kLoads * kThreads) {
    decltype(term.Load(0, 0)) loaded[kLoads] = {};
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const Divisor::Parts pixel = divisors.width.Split(at + i * kThreads);
      const uint32_t channel = first + pixel.rest;
      if (at + i * kThreads < values) {
        loaded[i] = term.Load(base + pixel.quotient * channels + channel, channel);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      if (at + i * kThreads < values) sum += term.Of(loaded[i]);
    }
  }
  sum = WarpSum(sum);
  if constexpr (kBlockWide) {
    __shared__ double parts[kBlock / 32];
    if (Lane() == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (const double part : parts) sum += part;
    __syncthreads();  // before the next sum overwrites the parts
  }
  return sum;
}

// The first group of this warp or block, and the number of them in the grid.
template <bool kBlockWide>
__device__ inline uint32_t FirstGroup() {
  return kBlockWide ? blockIdx.x : ThreadInGrid() / 32;
}
template <bool kBlockWide>
__device__ inline uint32_t GroupsOfGrid() {
  return kBlockWide ? gridDim.x : ThreadsOfGrid() / 32;
}
template <bool kBlockWide>
__device__ inline bool IsFirstThread() {
  return kBlockWide ? threadIdx.x == 0 : Lane() == 0;
}

template <typename T>
struct Value {
  const T* in;
  __device__ T Load(uint32_t i, uint32_t) const { return in[i]; }
  __device__ double Of(T x) const { return ToFloat(x); }
};
template <typename T>
struct SquaredDistance {
  const T* in;
  float mean;
  __device__ T Load(uint32_t i, uint32_t) const { return in[i]; }
  __device__ double Of(T x) const {
    const double distance = ToFloat(x) - mean;
    return distance * distance;
  }
};

template <bool kBlockWide, typename T>
__global__ void GroupStatisticsKernel(GroupShape s, GroupDivisors divisors, const T* in,
                                      float epsilon, GroupState state) {
  const auto n = static_cast<double>(s.values());
  for (uint32_t g = FirstGroup<kBlockWide>(); g < s.count; g += GroupsOfGrid<kBlockWide>()) {
    const auto mean = static_cast<float>(GroupSum<kBlockWide>(s, divisors, g, Value<T>{in}) / n);
    const double variance = GroupSum<kBlockWide>(s, divisors, g, SquaredDistance<T>{in, mean}) / n;
    if (!IsFirstThread<kBlockWide>()) continue;
    state.mean[g] = mean;
    state.inverse[g] = static_cast<float>(1 / sqrt(variance + static_cast<double>(epsilon)));
  }
}

// Packs have one channel if groups do not consist of whole packs.
template <int W, typename T>
__global__ void GroupNormaliseKernel(RowsWalk walk, GroupShape s, GroupDivisors divisors,
                                     GroupState state, const float* scale, const float* shift,
                                     bool relu, const T* in, T* out) {
  const uint32_t pack = walk.pack();
  if (pack >= walk.packs) return;
  const Pack<float, W> scales = LoadPack<W>(scale + pack * W),
                       shifts = LoadPack<W>(shift + pack * W);
  const uint32_t own = divisors.width.Quotient(pack * W);
  walk.ForRows([&](uint32_t row) { return LoadPack<W>(in + (row * walk.packs + pack) * W); },
               [&](uint32_t row, const Pack<T, W>& x) {
                 const uint32_t group = divisors.pixels.Quotient(row) * s.groups + own;
                 const float mean = state.mean[group], inverse = state.inverse[group];
                 Pack<T, W> y;
                 for (int j = 0; j < W; ++j) {
                   const float z =
                       (ToFloat(x.at[j]) - mean) * inverse * scales.at[j] + shifts.at[j];
                   y.at[j] = FromFloat<T>(relu && z < 0 ? 0.0f : z);  // NaN propagates
                 }
                 StorePack<W>(out + (row * walk.packs + pack) * W, y);
               });
}

// scale dy, and scale dy h.
template <typename T>
struct ScaledGradient {
  const float* scale;
  const T* out_gradient;
  struct Loaded {
    T dy;
    float scale;
  };
  __device__ Loaded Load(uint32_t i, uint32_t channel) const {
    return {out_gradient[i], scale[channel]};
  }
  __device__ double Of(const Loaded& loaded) const {
    return static_cast<double>(ToFloat(loaded.dy)) * loaded.scale;
  }
};
template <typename T>
struct GradientProduct {
  ScaledGradient<T> gradient;
  const T* in;
  float mean, inverse;
  struct Loaded {
    typename ScaledGradient<T>::Loaded gradient;
    T x;
  };
  __device__ Loaded Load(uint32_t i, uint32_t channel) const {
    return {gradient.Load(i, channel), in[i]};
  }
  __device__ double Of(const Loaded& loaded) const {
    return gradient.Of(loaded.gradient) * ((ToFloat(loaded.x) - mean) * inverse);
  }
};

// The means of both in each group.
template <bool kBlockWide, typename T>
__global__ void GroupGradientsKernel(GroupShape s, GroupDivisors divisors, GroupState state,
                                     const float* scale, const T* in, const T* out_gradient,
                                     GroupState means) {
  const auto n = static_cast<double>(s.values());
  for (uint32_t g = FirstGroup<kBlockWide>(); g < s.count; g += GroupsOfGrid<kBlockWide>()) {
    const ScaledGradient<T> gradient{scale, out_gradient};
    const double sum = GroupSum<kBlockWide>(s, divisors, g, gradient);
    const double product = GroupSum<kBlockWide>(
        s, divisors, g, GradientProduct<T>{gradient, in, state.mean[g], state.inverse[g]});
    if (!IsFirstThread<kBlockWide>()) continue;
    means.mean[g] = static_cast<float>(sum / n);
    means.inverse[g] = static_cast<float>(product / n);
  }
}

template <int W, typename T>
__global__ void GroupInputGradientKernel(RowsWalk walk, GroupShape s, GroupDivisors divisors,
                                         GroupState state, GroupState means, const float* scale,
                                         const T* in, const T* out_gradient, T* in_gradient) {
  struct Loaded {
    Pack<T, W> x, dy;
  };
  const uint32_t pack = walk.pack();
  if (pack >= walk.packs) return;
  const Pack<float, W> scales = LoadPack<W>(scale + pack * W);
  const uint32_t own = divisors.width.Quotient(pack * W);
  walk.ForRows(
      [&](uint32_t row) {
        const uint32_t at = (row * walk.packs + pack) * W;
        return Loaded{LoadPack<W>(in + at), LoadPack<W>(out_gradient + at)};
      },
      [&](uint32_t row, const Loaded& loaded) {
        const uint32_t group = divisors.pixels.Quotient(row) * s.groups + own;
        const float mean = state.mean[group], inverse = state.inverse[group];
        const float mean_gradient = means.mean[group], mean_product = means.inverse[group];
        Pack<T, W> dx;
        for (int j = 0; j < W; ++j) {
          const float h = (ToFloat(loaded.x.at[j]) - mean) * inverse;
          const float gradient = ToFloat(loaded.dy.at[j]) * scales.at[j];
          dx.at[j] = FromFloat<T>(inverse * (gradient - mean_gradient - h * mean_product));
        }
        StorePack<W>(in_gradient + (row * walk.packs + pack) * W, dx);
      });
}

// The sums of dy and of dy h over all rows, for each channel.
template <typename T>
struct ScaleGradients {
  GroupShape s;
  Divisor pixels;
  GroupState state;
  const T *in, *out_gradient;
  uint32_t group = 0;
  struct Loaded {
    T x, dy;
    float mean, inverse;
  };
  __device__ void Begin(int channel) {
    in += channel;
    out_gradient += channel;
    group = static_cast<uint32_t>(channel / s.width());
  }
  __device__ Loaded Load(uint32_t row) const {
    const uint32_t of = pixels.Quotient(row) * s.groups + group, at = row * s.channels;
    return {in[at], out_gradient[at], state.mean[of], state.inverse[of]};
  }
  __device__ void Add(float* sums, uint32_t, const Loaded& loaded) const {
    const float dy = ToFloat(loaded.dy);
    sums[0] += dy;
    sums[1] += dy * ((ToFloat(loaded.x) - loaded.mean) * loaded.inverse);
  }
};

template <typename T>
__global__ void ScalePartsKernel(GroupShape s, GroupDivisors divisors, GroupState state,
                                 const T* in, const T* out_gradient, uint32_t rows,
                                 uint32_t part_rows, double* scratch) {
  SumPart<2, 4>(rows, part_rows, s.channels, scratch,
                ScaleGradients<T>{s, divisors.pixels, state, in, out_gradient});
}

__global__ void ScaleGradientKernel(const double* scratch, uint32_t parts, uint32_t channels,
                                    float* scale_gradient, float* shift_gradient) {
  for (uint32_t c = ThreadInGrid() / 32; c < channels; c += ThreadsOfGrid() / 32) {
    const double shift = OverParts<2>(scratch, parts, channels, 0, c);
    const double scale = OverParts<2>(scratch, parts, channels, 1, c);
    if (Lane() != 0) continue;
    shift_gradient[c] = static_cast<float>(shift);
    scale_gradient[c] = static_cast<float>(scale);
  }
}

// Launches one of two kernels, for warps and for blocks, over all groups.
template <typename Kernel, typename... Arguments>
void LaunchGroups(const Target& target, const GroupShape& shape, Kernel warps, Kernel blocks,
                  Arguments... arguments) {
  if (shape.values() < kValuesOfBlock) {
    LaunchWarps(target, shape.count, warps, shape, GroupDivisors(shape), arguments...);
  } else {
    LaunchOver(target, shape.count * kBlock, blocks, shape, GroupDivisors(shape), arguments...);
  }
}

// As WithWidth, but no pack is in two groups.
template <typename Body, typename... Pointers>
void WithGroupWidth(const GroupShape& shape, const Body& body, const Pointers*... all) {
  WithWidth(shape.width() % 4 == 0 ? shape.channels : 1, body, all...);
}

}  // namespace

template <typename T>
void GroupNorm(const Target& target, const GroupShape& shape, float epsilon, const float* scale,
               const float* shift, bool relu, const T* in, T* out, const GroupState& state) {
  LaunchGroups(target, shape, GroupStatisticsKernel<false, T>, GroupStatisticsKernel<true, T>, in,
               epsilon, state);
  WithGroupWidth(
      shape,
      [&](auto width) {
        LaunchRows(target, shape.rows(), shape.channels / width, GroupNormaliseKernel<width, T>,
                   shape, GroupDivisors(shape), state, scale, shift, relu, in, out);
      },
      scale, shift, in, out);
}

template <typename T>
void GroupNormScaleGradient(const Target& target, const GroupShape& shape, const ColumnParts& parts,
                            const GroupState& state, const T* in, const T* out_gradient,
                            double* scratch, float* scale_gradient, float* shift_gradient) {
  LaunchParts(target, parts, ScalePartsKernel<T>, shape, GroupDivisors(shape), state, in,
              out_gradient, parts.rows, parts.part_rows, scratch);
  LaunchWarps(target, parts.channels, ScaleGradientKernel, scratch, parts.parts, parts.channels,
              scale_gradient, shift_gradient);
}

template <typename T>
void GroupNormInputGradient(const Target& target, const GroupShape& shape, const GroupState& state,
                            const GroupState& means, const float* scale, const T* in,
                            const T* out_gradient, T* in_gradient) {
  LaunchGroups(target, shape, GroupGradientsKernel<false, T>, GroupGradientsKernel<true, T>, state,
               scale, in, out_gradient, means);
  WithGroupWidth(
      shape,
      [&](auto width) {
        LaunchRows(target, shape.rows(), shape.channels / width, GroupInputGradientKernel<width, T>,
                   shape, GroupDivisors(shape), state, means, scale, in, out_gradient, in_gradient);
      },
      scale, in, out_gradient, in_gradient);
}

#define MUSTER_INSTANTIATE(T)                                                                  \
  template void GroupNorm(const Target&, const GroupShape&, float, const float*, const float*, \
                          bool, const T*, T*, const GroupState&);                              \
  template void GroupNormScaleGradient(const Target&, const GroupShape&, const ColumnParts&,   \
                                       const GroupState&, const T*, const T*, double*, float*, \
                                       float*);                                                \
  template void GroupNormInputGradient(const Target&, const GroupShape&, const GroupState&,    \
                                       const GroupState&, const float*, const T*, const T*, T*);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
