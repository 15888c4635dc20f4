// Batch normalization; worker/backend/cpu/batch_norm.cc has the formulas and the list of fused ops.
#include <type_traits>

#include "worker/backend/cuda/column_sums.h"
#include "worker/backend/cuda/rows_walk.h"

namespace muster::cuda {
namespace {

// The sums of x - shift and of its square, where shift is the channel's first value. Without the
// shift, Σx² - (Σx)²/n would lose all its digits if the mean were large compared to the spread. A
// first value that is k spreads from the mean costs a share of about k² 2^-24 of the variance.
template <typename T>
struct ShiftedValues {
  const T* in;
  uint32_t channels;
  float shift = 0;
  __device__ void Begin(int channel) {
    in += channel;
    shift = ToFloat(*in);
  }
  __device__ T Load(uint32_t row) const { return in[row * channels]; }
  __device__ void Add(float* sums, uint32_t, T x) const {
    const float d = ToFloat(x) - shift;
    sums[0] += d;
    sums[1] += d * d;
  }
};

template <typename T>
__global__ void MUSTER_FOUR_BLOCKS StatisticsPartsKernel(const T* in, uint32_t rows,
                                                         uint32_t part_rows, int channels,
                                                         double* scratch) {
  SumPart<2, 8>(rows, part_rows, channels, scratch,
                ShiftedValues<T>{in, static_cast<uint32_t>(channels)});
}

__device__ inline void SetInverse(const NormState& state, uint32_t c, float epsilon,
                                  const float* scale) {
  state.inverse[c] = 1.0f / sqrtf(state.variance[c] + epsilon);
  state.slope[c] = scale[c] * state.inverse[c];
}

template <typename T>
__global__ void StatisticsKernel(const T* in, uint32_t rows, uint32_t parts, uint32_t channels,
                                 const double* scratch, float epsilon, const float* scale,
                                 NormState state) {
  const auto n = static_cast<double>(rows);
  for (uint32_t c = ThreadInGrid() / 32; c < channels; c += ThreadsOfGrid() / 32) {
    const double offset = OverParts<2>(scratch, parts, channels, 0, c) / n;
    const double squares = OverParts<2>(scratch, parts, channels, 1, c) / n;
    if (Lane() != 0) continue;
    const double variance = squares - offset * offset;
    state.mean[c] = static_cast<float>(ToFloat(in[c]) + offset);
    state.variance[c] = variance < 0 ? 0.0f : static_cast<float>(variance);  // NaN propagates
    SetInverse(state, c, epsilon, scale);
  }
}

__global__ void GivenStatisticsKernel(const float* mean, const float* variance, float epsilon,
                                      const float* scale, uint32_t channels, NormState state) {
  for (uint32_t c = ThreadInGrid(); c < channels; c += ThreadsOfGrid()) {
    state.mean[c] = mean[c];
    state.variance[c] = variance[c];
    SetInverse(state, c, epsilon, scale);
  }
}

// Forward and backward must use the same expression, so that backward recomputes the same sign of
// z.
__device__ inline float Affine(float x, float mean, float slope, float shift) {
  return fmaf(x - mean, slope, shift);
}

// NaN propagates.
__device__ inline float Activate(Activation activation, float z) {
  if (activation == Activation::kNone) return z;
  const float positive = z < 0 ? 0.0f : z;
  return activation == Activation::kRelu6 && positive > 6 ? 6.0f : positive;
}

// dy where the activation passed its argument y, else zero. `y` may also be the activation's
// result.
__device__ inline float Mask(Activation activation, float dy, float y) {
  if (activation == Activation::kNone) return dy;
  if (!(y > 0)) return 0;
  return activation == Activation::kRelu6 && !(y < 6) ? 0.0f : dy;
}

template <typename T, int W>
struct TwoPacks {
  Pack<T, W> x, added;
};

template <int W, bool kAdds, typename T>
__global__ void NormaliseKernel(RowsWalk walk, NormState state, const float* shift,
                                Activation activation, const T* in, const T* added, T* out) {
  const uint32_t pack = walk.pack();
  if (pack >= walk.packs) return;
  const Pack<float, W> mean = LoadPack<W>(state.mean + pack * W),
                       slope = LoadPack<W>(state.slope + pack * W),
                       shifts = LoadPack<W>(shift + pack * W);
  walk.ForRows(
      [&](uint32_t row) {
        const uint32_t at = (row * walk.packs + pack) * W;
        TwoPacks<T, W> loaded{LoadPack<W>(in + at), {}};
        if constexpr (kAdds) loaded.added = LoadPack<W>(added + at);
        return loaded;
      },
      [&](uint32_t row, const TwoPacks<T, W>& loaded) {
        Pack<T, W> y;
        for (int j = 0; j < W; ++j) {
          float z = Affine(ToFloat(loaded.x.at[j]), mean.at[j], slope.at[j], shifts.at[j]);
          if constexpr (kAdds) z += ToFloat(loaded.added.at[j]);
          y.at[j] = FromFloat<T>(Activate(activation, z));
        }
        StorePack<W>(out + (row * walk.packs + pack) * W, y);
      });
}

// What backward reads at an element, and how it finds the gradient of z from it.
enum class MaskFrom {
  kNothing,  // there is no activation, or out_gradient already is the gradient of z
  kOutput,
  kInput,  // z is recomputed
};
template <typename T>
struct NormTensors {
  const T *in, *out, *out_gradient;
};
template <typename T, int W>
struct NormPacks {
  Pack<T, W> x, dy, y;
};

template <MaskFrom kMask, int W, typename T>
__device__ inline NormPacks<T, W> LoadNorm(const NormTensors<T>& tensors, uint32_t at) {
  NormPacks<T, W> packs{LoadPack<W>(tensors.in + at), LoadPack<W>(tensors.out_gradient + at), {}};
  if constexpr (kMask == MaskFrom::kOutput) packs.y = LoadPack<W>(tensors.out + at);
  return packs;
}
template <MaskFrom kMask, typename T, int W>
__device__ inline float Dz(Activation activation, const NormPacks<T, W>& packs, int j, float mean,
                           float slope, float shift) {
  const float dy = ToFloat(packs.dy.at[j]);
  if constexpr (kMask == MaskFrom::kNothing) return dy;
  if constexpr (kMask == MaskFrom::kOutput) return Mask(activation, dy, ToFloat(packs.y.at[j]));
  return Mask(activation, dy, Affine(ToFloat(packs.x.at[j]), mean, slope, shift));
}

template <MaskFrom kMask, typename T>
struct Gradients {
  NormBackward norm;
  NormTensors<T> tensors;
  T* dz;
  uint32_t channels;
  uint32_t channel = 0;
  float mean = 0, slope = 0, shift = 0;
  __device__ void Begin(int of) {
    channel = static_cast<uint32_t>(of);
    mean = norm.state.mean[of];
    slope = norm.state.slope[of];
    shift = norm.shift[of];
  }
  __device__ NormPacks<T, 1> Load(uint32_t row) const {
    return LoadNorm<kMask, 1>(tensors, row * channels + channel);
  }
  __device__ void Add(float* sums, uint32_t row, const NormPacks<T, 1>& packs) const {
    const float gradient = Dz<kMask>(norm.activation, packs, 0, mean, slope, shift);
    sums[0] += gradient;
    sums[1] += gradient * (ToFloat(packs.x.at[0]) - mean);
    if (dz != nullptr) dz[row * channels + channel] = FromFloat<T>(gradient);
  }
};

template <MaskFrom kMask, typename T>
__global__ void MUSTER_FOUR_BLOCKS NormPartsKernel(NormBackward norm, NormTensors<T> tensors, T* dz,
                                                   uint32_t rows, uint32_t part_rows, int channels,
                                                   double* scratch) {
  SumPart<2, 8>(rows, part_rows, channels, scratch,
                Gradients<kMask, T>{norm, tensors, dz, static_cast<uint32_t>(channels)});
}

__global__ void MUSTER_FOUR_BLOCKS NormSumsKernel(NormBackward norm, const double* scratch,
                                                  uint32_t parts, uint32_t rows,
                                                  uint32_t channels) {
  const auto n = static_cast<double>(rows);
  const double unbiased = norm.unbiased && rows > 1 ? n / (n - 1) : 1;
  for (uint32_t c = ThreadInGrid() / 32; c < channels; c += ThreadsOfGrid() / 32) {
    const double sum = OverParts<2>(scratch, parts, channels, 0, c);
    const double product = OverParts<2>(scratch, parts, channels, 1, c);
    if (Lane() != 0) continue;
    const double inverse = norm.state.inverse[c];
    norm.shift_gradient[c] = static_cast<float>(sum);
    norm.scale_gradient[c] = static_cast<float>(product * inverse);
    norm.gradients.mean[c] = norm.frozen ? 0 : static_cast<float>(sum / n);
    norm.gradients.slope[c] = norm.frozen ? 0 : static_cast<float>(product * inverse * inverse / n);
    norm.mean_statistic[c] = norm.state.mean[c] * norm.statistic_weight;
    norm.variance_statistic[c] =
        static_cast<float>(norm.state.variance[c] * unbiased) * norm.statistic_weight;
  }
}

template <int W, MaskFrom kMask, typename T>
__global__ void NormInputGradientKernel(RowsWalk walk, NormBackward norm, NormTensors<T> tensors,
                                        T* in_gradient) {
  const uint32_t pack = walk.pack();
  if (pack >= walk.packs) return;
  const uint32_t channel = pack * W;
  const Pack<float, W> mean = LoadPack<W>(norm.state.mean + channel),
                       slope = LoadPack<W>(norm.state.slope + channel),
                       gradient_mean = LoadPack<W>(norm.gradients.mean + channel),
                       gradient_slope = LoadPack<W>(norm.gradients.slope + channel);
  Pack<float, W> shift{};
  if constexpr (kMask == MaskFrom::kInput) shift = LoadPack<W>(norm.shift + channel);
  walk.ForRows(
      [&](uint32_t row) { return LoadNorm<kMask, W>(tensors, (row * walk.packs + pack) * W); },
      [&](uint32_t row, const NormPacks<T, W>& packs) {
        Pack<T, W> dx;
        for (int j = 0; j < W; ++j) {
          const float distance = ToFloat(packs.x.at[j]) - mean.at[j];
          const float dz =
              Dz<kMask>(norm.activation, packs, j, mean.at[j], slope.at[j], shift.at[j]);
          dx.at[j] = FromFloat<T>(slope.at[j] *
                                  (dz - gradient_mean.at[j] - distance * gradient_slope.at[j]));
        }
        StorePack<W>(in_gradient + (row * walk.packs + pack) * W, dx);
      });
}

// Calls body(std::integral_constant<MaskFrom, ...>()).
template <typename Body>
void WithMask(const NormBackward& norm, bool has_dz, const Body& body) {
  if (has_dz || norm.activation == Activation::kNone) {
    body(std::integral_constant<MaskFrom, MaskFrom::kNothing>());
  } else if (norm.from_output) {
    body(std::integral_constant<MaskFrom, MaskFrom::kOutput>());
  } else {
    body(std::integral_constant<MaskFrom, MaskFrom::kInput>());
  }
}

}  // namespace

template <typename T>
void BatchStatistics(const Target& target, const ColumnParts& parts, const T* in, double* scratch,
                     float epsilon, const float* scale, const NormState& state) {
  LaunchParts(target, parts, StatisticsPartsKernel<T>, in, parts.rows, parts.part_rows,
              parts.channels, scratch);
  LaunchWarps(target, parts.channels, StatisticsKernel<T>, in, parts.rows, parts.parts,
              parts.channels, scratch, epsilon, scale, state);
}

void GivenStatistics(const Target& target, const float* mean, const float* variance, float epsilon,
                     const float* scale, int channels, const NormState& state) {
  LaunchOver(target, channels, GivenStatisticsKernel, mean, variance, epsilon, scale, channels,
             state);
}

template <typename T>
void Normalise(const Target& target, const NormState& state, const float* shift,
               Activation activation, const T* in, const T* added, T* out, int64_t rows,
               int channels) {
  const auto launch = [&](auto width) {
    constexpr int W = width;
    const auto start = [&](auto kernel) {
      LaunchRows(target, rows, channels / W, kernel, state, shift, activation, in, added, out);
    };
    if (added != nullptr) return start(NormaliseKernel<W, true, T>);
    start(NormaliseKernel<W, false, T>);
  };
  WithWidth(channels, launch, state.mean, state.slope, shift, in, added, out);
}

template <typename T>
void NormSums(const Target& target, const ColumnParts& parts, const NormBackward& norm, const T* in,
              const T* out, const T* out_gradient, T* dz, double* scratch) {
  WithMask(norm, false, [&](auto mask) {
    LaunchParts(target, parts, NormPartsKernel<mask, T>, norm,
                NormTensors<T>{in, out, out_gradient}, dz, parts.rows, parts.part_rows,
                parts.channels, scratch);
  });
  LaunchWarps(target, parts.channels, NormSumsKernel, norm, scratch, parts.parts, parts.rows,
              parts.channels);
}

template <typename T>
void NormInputGradient(const Target& target, const NormBackward& norm, const T* in, const T* out,
                       const T* out_gradient, bool has_dz, T* in_gradient, int64_t rows,
                       int channels) {
  const auto launch = [&](auto width) {
    constexpr int W = width;
    WithMask(norm, has_dz, [&](auto mask) {
      LaunchRows(target, rows, channels / W, NormInputGradientKernel<W, mask, T>, norm,
                 NormTensors<T>{in, out, out_gradient}, in_gradient);
    });
  };
  WithWidth(channels, launch, norm.state.mean, norm.state.slope, norm.gradients.mean,
            norm.gradients.slope, norm.shift, in, out, out_gradient, in_gradient);
}

#define MUSTER_INSTANTIATE(T)                                                                  \
  template void BatchStatistics(const Target&, const ColumnParts&, const T*, double*, float,   \
                                const float*, const NormState&);                               \
  template void Normalise(const Target&, const NormState&, const float*, Activation, const T*, \
                          const T*, T*, int64_t, int);                                         \
  template void NormSums(const Target&, const ColumnParts&, const NormBackward&, const T*,     \
                         const T*, const T*, T*, double*);                                     \
  template void NormInputGradient(const Target&, const NormBackward&, const T*, const T*,      \
                                  const T*, bool, T*, int64_t, int);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
