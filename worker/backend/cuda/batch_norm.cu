// Batch normalization; worker/backend/cpu/batch_norm.cc has the formulas and the list of fused ops.
#include "worker/backend/cuda/column_sums.h"

namespace muster::cuda {
namespace {

// The sums of x - shift and of its square, where shift is the part's first value. Without the
// shift, Σx² - (Σx)²/n would lose all its digits if the mean were large compared to the spread.
template <typename T>
struct FirstOfPart {
  const T* in;
  int channels;
  __device__ float operator()(int channel, int64_t row) const {
    return ToFloat(in[row * channels + channel]);
  }
};
template <typename T>
struct AddShifted {
  const T* in;
  int channels;
  __device__ void operator()(float* sums, int64_t row, int channel, float shift) const {
    const float d = ToFloat(in[row * channels + channel]) - shift;
    sums[0] += d;
    sums[1] += d * d;
  }
};

template <typename T>
__global__ void StatisticsPartsKernel(const T* in, int64_t rows, int channels, double* scratch) {
  SumPart<2>(rows, channels, scratch, FirstOfPart<T>{in, channels}, AddShifted<T>{in, channels});
}

__device__ inline void SetInverse(const NormState& state, int64_t c, float epsilon,
                                  const float* scale) {
  state.inverse[c] = 1.0f / sqrtf(state.variance[c] + epsilon);
  state.slope[c] = scale[c] * state.inverse[c];
}

// Combines the parts into the mean so far and the squared distances from it (Chan, Golub, LeVeque
// 1979).
template <typename T>
__global__ void StatisticsKernel(const T* in, int64_t rows, int parts, int channels,
                                 const double* scratch, float epsilon, const float* scale,
                                 NormState state) {
  for (int64_t c = ThreadInGrid(); c < channels; c += ThreadsOfGrid()) {
    double n = 0, mean = 0, squares = 0;
    for (int part = 0; part < parts; ++part) {
      const PartRows range = RowsOf(rows, parts, part);
      const auto m = static_cast<double>(range.end - range.begin);
      const double sum = scratch[static_cast<int64_t>(part) * 2 * channels + c];
      const double square = scratch[(static_cast<int64_t>(part) * 2 + 1) * channels + c];
      const double offset = sum / m;
      const double part_mean = ToFloat(in[range.begin * channels + c]) + offset;
      const double difference = part == 0 ? 0 : part_mean - mean;
      squares += square - sum * offset + difference * difference * (n * m / (n + m));
      mean = part == 0 ? part_mean : mean + difference * (m / (n + m));
      n += m;
    }
    const double variance = squares / n;
    state.mean[c] = static_cast<float>(mean);
    state.variance[c] = variance < 0 ? 0.0f : static_cast<float>(variance);  // NaN propagates
    SetInverse(state, c, epsilon, scale);
  }
}

__global__ void GivenStatisticsKernel(const float* mean, const float* variance, float epsilon,
                                      const float* scale, int channels, NormState state) {
  for (int64_t c = ThreadInGrid(); c < channels; c += ThreadsOfGrid()) {
    state.mean[c] = mean[c];
    state.variance[c] = variance[c];
    SetInverse(state, c, epsilon, scale);
  }
}

// Forward and backward must use the same expression, so that backward recomputes the same sign of
// z.
__device__ inline float Affine(float x, const NormState& state, const float* shift, int channel) {
  return fmaf(x - state.mean[channel], state.slope[channel], shift[channel]);
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

template <int W, typename T>
__global__ void NormaliseKernel(NormState state, const float* shift, Activation activation,
                                const T* in, const T* added, T* out, int packs_of_row,
                                int64_t packs) {
  for (int64_t i = ThreadInGrid(); i < packs; i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % packs_of_row) * W;
    const Pack<T, W> x = LoadPack<W>(in + i * W);
    Pack<T, W> a, y;
    if (added != nullptr) a = LoadPack<W>(added + i * W);
    for (int j = 0; j < W; ++j) {
      float z = Affine(ToFloat(x.at[j]), state, shift, channel + j);
      if (added != nullptr) z += ToFloat(a.at[j]);
      y.at[j] = FromFloat<T>(Activate(activation, z));
    }
    StorePack<W>(out + i * W, y);
  }
}

// The tensors that backward reads.
template <typename T>
struct NormTensors {
  const T *in, *out, *out_gradient;
  bool has_dz;

  // The gradient of z.
  __device__ float Dz(const NormBackward& norm, int64_t at, int channel) const {
    const float dy = ToFloat(out_gradient[at]);
    if (has_dz || norm.activation == Activation::kNone) return dy;
    const float y = norm.from_output ? ToFloat(out[at])
                                     : Affine(ToFloat(in[at]), norm.state, norm.shift, channel);
    return Mask(norm.activation, dy, y);
  }
};

struct MeanOfChannel {
  const float* mean;
  __device__ float operator()(int channel, int64_t) const { return mean[channel]; }
};
template <typename T>
struct AddGradient {
  NormBackward norm;
  NormTensors<T> tensors;
  T* dz;
  int channels;
  __device__ void operator()(float* sums, int64_t row, int channel, float mean) const {
    const int64_t at = row * channels + channel;
    const float gradient = tensors.Dz(norm, at, channel);
    sums[0] += gradient;
    sums[1] += gradient * (ToFloat(tensors.in[at]) - mean);
    if (dz != nullptr) dz[at] = FromFloat<T>(gradient);
  }
};

template <typename T>
__global__ void NormPartsKernel(NormBackward norm, NormTensors<T> tensors, T* dz, int64_t rows,
                                int channels, double* scratch) {
  SumPart<2>(rows, channels, scratch, MeanOfChannel{norm.state.mean},
             AddGradient<T>{norm, tensors, dz, channels});
}

__global__ void MUSTER_FOUR_BLOCKS NormSumsKernel(NormBackward norm, const double* scratch,
                                                  int parts, int64_t rows, int channels) {
  const auto n = static_cast<double>(rows);
  const double unbiased = norm.unbiased && rows > 1 ? n / (n - 1) : 1;
  for (int64_t i = ThreadInGrid(); i < channels; i += ThreadsOfGrid()) {
    const int c = static_cast<int>(i);
    const double sum = OverParts<2>(scratch, parts, channels, 0, c);
    const double product = OverParts<2>(scratch, parts, channels, 1, c);
    const double inverse = norm.state.inverse[c];
    norm.shift_gradient[c] = static_cast<float>(sum);
    norm.scale_gradient[c] = static_cast<float>(product * inverse);
    norm.gradients.mean[c] = static_cast<float>(sum / n);
    norm.gradients.slope[c] = static_cast<float>(product * inverse * inverse / n);
    norm.mean_statistic[c] = norm.state.mean[c] * norm.statistic_weight;
    norm.variance_statistic[c] =
        static_cast<float>(norm.state.variance[c] * unbiased) * norm.statistic_weight;
  }
}

template <typename T>
__global__ void NormInputGradientKernel(NormBackward norm, NormTensors<T> tensors, T* in_gradient,
                                        int channels, int64_t count) {
  for (int64_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int c = static_cast<int>(i % channels);
    const float distance = ToFloat(tensors.in[i]) - norm.state.mean[c];
    const float dz = tensors.Dz(norm, i, c);
    in_gradient[i] = FromFloat<T>(
        norm.state.slope[c] * (dz - norm.gradients.mean[c] - distance * norm.gradients.slope[c]));
  }
}

}  // namespace

template <typename T>
void BatchStatistics(const Target& target, const ColumnParts& parts, const T* in, double* scratch,
                     float epsilon, const float* scale, const NormState& state) {
  LaunchParts(target, parts, StatisticsPartsKernel<T>, in, parts.rows, parts.channels, scratch);
  LaunchOver(target, parts.channels, StatisticsKernel<T>, in, parts.rows, parts.parts,
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
  constexpr int W = kWide<T>;
  const int64_t count = rows * channels;
  if (channels % W == 0) {
    LaunchOver(target, count / W, NormaliseKernel<W, T>, state, shift, activation, in, added, out,
               channels / W, count / W);
  } else {
    LaunchOver(target, count, NormaliseKernel<1, T>, state, shift, activation, in, added, out,
               channels, count);
  }
}

template <typename T>
void NormSums(const Target& target, const ColumnParts& parts, const NormBackward& norm, const T* in,
              const T* out, const T* out_gradient, T* dz, double* scratch) {
  LaunchParts(target, parts, NormPartsKernel<T>, norm, NormTensors<T>{in, out, out_gradient, false},
              dz, parts.rows, parts.channels, scratch);
  LaunchOver(target, parts.channels, NormSumsKernel, norm, scratch, parts.parts, parts.rows,
             parts.channels);
}

template <typename T>
void NormInputGradient(const Target& target, const NormBackward& norm, const T* in, const T* out,
                       const T* out_gradient, bool has_dz, T* in_gradient, int64_t rows,
                       int channels) {
  LaunchOver(target, rows * channels, NormInputGradientKernel<T>, norm,
             NormTensors<T>{in, out, out_gradient, has_dz}, in_gradient, channels, rows * channels);
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
MUSTER_INSTANTIATE(float)
MUSTER_INSTANTIATE(Bf16)

}  // namespace muster::cuda
