// Normalisation of each sample on its own; worker/backend/cpu/group_norm.cc has the formulas.
#include "worker/backend/cuda/column_sums.h"

namespace muster::cuda {
namespace {

// Groups with fewer values than this are summed by a warp, others by a block.
constexpr int64_t kValuesOfBlock = 2048;

// Sums `term`(element, channel) over the values of a group, in a fixed tree. Every thread of the
// warp or block gets the sum.
template <bool kBlockWide, typename Term>
__device__ inline double GroupSum(const GroupShape& s, int64_t group, const Term& term) {
  const int64_t block = group / s.groups;
  const int first = static_cast<int>(group % s.groups) * s.width();
  const int64_t base = block * s.pixels * s.channels;
  const int thread = kBlockWide ? static_cast<int>(threadIdx.x) : Lane();
  double sum = 0;
  for (int64_t at = thread; at < s.values(); at += kBlockWide ? kBlock : 32) {
    const int64_t pixel = at / s.width();
    const int channel = first + static_cast<int>(at - pixel * s.width());
    sum += term(base + pixel * s.channels + channel, channel);
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
__device__ inline int64_t FirstGroup() {
  return kBlockWide ? blockIdx.x : ThreadInGrid() / 32;
}
template <bool kBlockWide>
__device__ inline int64_t GroupsOfGrid() {
  return kBlockWide ? gridDim.x : ThreadsOfGrid() / 32;
}
template <bool kBlockWide>
__device__ inline bool IsFirstThread() {
  return kBlockWide ? threadIdx.x == 0 : Lane() == 0;
}

template <bool kBlockWide, typename T>
__global__ void GroupStatisticsKernel(GroupShape s, const T* in, float epsilon, GroupState state) {
  for (int64_t g = FirstGroup<kBlockWide>(); g < s.count; g += GroupsOfGrid<kBlockWide>()) {
    const auto n = static_cast<double>(s.values());
    const auto mean = static_cast<float>(
        GroupSum<kBlockWide>(s, g, [&](int64_t i, int) { return ToFloat(in[i]); }) / n);
    const double variance = GroupSum<kBlockWide>(s, g,
                                                 [&](int64_t i, int) {
                                                   const double distance = ToFloat(in[i]) - mean;
                                                   return distance * distance;
                                                 }) /
                            n;
    if (!IsFirstThread<kBlockWide>()) continue;
    state.mean[g] = mean;
    state.inverse[g] = static_cast<float>(1 / sqrt(variance + static_cast<double>(epsilon)));
  }
}

template <typename T>
__global__ void GroupNormaliseKernel(GroupShape s, GroupState state, const float* scale,
                                     const float* shift, bool relu, const T* in, T* out) {
  for (int64_t i = ThreadInGrid(); i < s.elements(); i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % s.channels);
    const int64_t group = s.GroupOf(i / s.channels, channel);
    const float h = (ToFloat(in[i]) - state.mean[group]) * state.inverse[group];
    const float z = h * scale[channel] + shift[channel];
    out[i] = FromFloat<T>(relu && z < 0 ? 0.0f : z);  // NaN propagates
  }
}

// The means of scale dy and of scale dy h in each group.
template <bool kBlockWide, typename T>
__global__ void GroupGradientsKernel(GroupShape s, GroupState state, const float* scale,
                                     const T* in, const T* out_gradient, GroupState means) {
  for (int64_t g = FirstGroup<kBlockWide>(); g < s.count; g += GroupsOfGrid<kBlockWide>()) {
    const auto n = static_cast<double>(s.values());
    const float mean = state.mean[g], inverse = state.inverse[g];
    const auto gradient = [&](int64_t i, int channel) {
      return static_cast<double>(ToFloat(out_gradient[i])) * scale[channel];
    };
    const double sum = GroupSum<kBlockWide>(s, g, gradient);
    const double product = GroupSum<kBlockWide>(s, g, [&](int64_t i, int channel) {
      return gradient(i, channel) * ((ToFloat(in[i]) - mean) * inverse);
    });
    if (!IsFirstThread<kBlockWide>()) continue;
    means.mean[g] = static_cast<float>(sum / n);
    means.inverse[g] = static_cast<float>(product / n);
  }
}

template <typename T>
__global__ void GroupInputGradientKernel(GroupShape s, GroupState state, GroupState means,
                                         const float* scale, const T* in, const T* out_gradient,
                                         T* in_gradient) {
  for (int64_t i = ThreadInGrid(); i < s.elements(); i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % s.channels);
    const int64_t group = s.GroupOf(i / s.channels, channel);
    const float inverse = state.inverse[group];
    const float h = (ToFloat(in[i]) - state.mean[group]) * inverse;
    const float gradient = ToFloat(out_gradient[i]) * scale[channel];
    in_gradient[i] =
        FromFloat<T>(inverse * (gradient - means.mean[group] - h * means.inverse[group]));
  }
}

// The sums of dy and of dy h over all rows, for each channel.
template <typename T>
struct AddScaleGradient {
  GroupShape s;
  GroupState state;
  const T *in, *out_gradient;
  __device__ void operator()(float* sums, int64_t row, int channel, int) const {
    const int64_t i = row * s.channels + channel, group = s.GroupOf(row, channel);
    const float dy = ToFloat(out_gradient[i]);
    sums[0] += dy;
    sums[1] += dy * ((ToFloat(in[i]) - state.mean[group]) * state.inverse[group]);
  }
};
struct NothingToPrepare {
  __device__ int operator()(int, int64_t) const { return 0; }
};

template <typename T>
__global__ void ScalePartsKernel(GroupShape s, GroupState state, const T* in, const T* out_gradient,
                                 int64_t rows, double* scratch) {
  SumPart<2>(rows, s.channels, scratch, NothingToPrepare(),
             AddScaleGradient<T>{s, state, in, out_gradient});
}

__global__ void ScaleGradientKernel(const double* scratch, int parts, int channels,
                                    float* scale_gradient, float* shift_gradient) {
  for (int64_t i = ThreadInGrid(); i < channels; i += ThreadsOfGrid()) {
    const int c = static_cast<int>(i);
    shift_gradient[c] = static_cast<float>(OverParts<2>(scratch, parts, channels, 0, c));
    scale_gradient[c] = static_cast<float>(OverParts<2>(scratch, parts, channels, 1, c));
  }
}

// Launches one of two kernels, for warps and for blocks, over all groups.
template <typename Kernel, typename... Arguments>
void LaunchGroups(const Target& target, const GroupShape& shape, Kernel warps, Kernel blocks,
                  Arguments... arguments) {
  if (shape.values() < kValuesOfBlock) {
    LaunchWarps(target, shape.count, warps, shape, arguments...);
  } else {
    LaunchOver(target, shape.count * kBlock, blocks, shape, arguments...);
  }
}

}  // namespace

template <typename T>
void GroupNorm(const Target& target, const GroupShape& shape, float epsilon, const float* scale,
               const float* shift, bool relu, const T* in, T* out, const GroupState& state) {
  LaunchGroups(target, shape, GroupStatisticsKernel<false, T>, GroupStatisticsKernel<true, T>, in,
               epsilon, state);
  LaunchOver(target, shape.elements(), GroupNormaliseKernel<T>, shape, state, scale, shift, relu,
             in, out);
}

template <typename T>
void GroupNormScaleGradient(const Target& target, const GroupShape& shape, const ColumnParts& parts,
                            const GroupState& state, const T* in, const T* out_gradient,
                            double* scratch, float* scale_gradient, float* shift_gradient) {
  LaunchParts(target, parts, ScalePartsKernel<T>, shape, state, in, out_gradient, parts.rows,
              scratch);
  LaunchOver(target, parts.channels, ScaleGradientKernel, scratch, parts.parts, parts.channels,
             scale_gradient, shift_gradient);
}

template <typename T>
void GroupNormInputGradient(const Target& target, const GroupShape& shape, const GroupState& state,
                            const GroupState& means, const float* scale, const T* in,
                            const T* out_gradient, T* in_gradient) {
  LaunchGroups(target, shape, GroupGradientsKernel<false, T>, GroupGradientsKernel<true, T>, state,
               scale, in, out_gradient, means);
  LaunchOver(target, shape.elements(), GroupInputGradientKernel<T>, shape, state, means, scale, in,
             out_gradient, in_gradient);
}

#define MUSTER_INSTANTIATE(T)                                                                  \
  template void GroupNorm(const Target&, const GroupShape&, float, const float*, const float*, \
                          bool, const T*, T*, const GroupState&);                              \
  template void GroupNormScaleGradient(const Target&, const GroupShape&, const ColumnParts&,   \
                                       const GroupState&, const T*, const T*, double*, float*, \
                                       float*);                                                \
  template void GroupNormInputGradient(const Target&, const GroupShape&, const GroupState&,    \
                                       const GroupState&, const float*, const T*, const T*, T*);
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
