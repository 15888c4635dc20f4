// Local response normalization; worker/backend/cpu/lrn.cc has the formulas.
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace muster::cuda {
namespace {

// The layer's parameters for kernels. The radius is limited to the number of channels.
struct Window {
  int radius;
  float bias, alpha, beta;
};

struct Powers {
  float power, inverse;  // n^-β, 1 / n
};

__device__ inline float Square(float x) { return x * x; }

// Returns the powers of a channel. `row` holds the channels of its pixel.
template <typename T>
__device__ inline Powers PowersAt(const Window& window, const T* row, int channel, int channels) {
  const int first = channel > window.radius ? channel - window.radius : 0;
  const int last = channel + window.radius < channels ? channel + window.radius : channels - 1;
  float sum = 0;
  for (int j = first; j <= last; ++j) sum += Square(ToFloat(row[j]));
  const float n = window.bias + window.alpha * sum;
  const float inverse = 1.0f / n;
  if (window.beta != 0.75f) return {powf(n, -window.beta), inverse};
  const float root = sqrtf(inverse);
  return {root * sqrtf(root), inverse};
}

template <typename T>
__global__ void LrnKernel(Window window, const T* in, T* out, int channels, uint32_t count) {
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % static_cast<uint32_t>(channels));
    const Powers p = PowersAt(window, in + (i - channel), channel, channels);
    out[i] = FromFloat<T>(ToFloat(in[i]) * p.power);
  }
}

// terms = dy y / n.
template <typename T>
__global__ void LrnTermsKernel(Window window, const T* in, const T* out_gradient, float* terms,
                               int channels, uint32_t count) {
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % static_cast<uint32_t>(channels));
    const Powers p = PowersAt(window, in + (i - channel), channel, channels);
    terms[i] = ToFloat(out_gradient[i]) * ToFloat(in[i]) * p.power * p.inverse;
  }
}

template <typename T>
__global__ void LrnGradientKernel(Window window, const T* in, const T* out_gradient,
                                  const float* terms, bool after_relu, T* in_gradient, int channels,
                                  uint32_t count) {
  const float factor = 2 * window.alpha * window.beta;
  for (uint32_t i = ThreadInGrid(); i < count; i += ThreadsOfGrid()) {
    const int channel = static_cast<int>(i % static_cast<uint32_t>(channels));
    const uint32_t pixel = i - channel;
    const Powers p = PowersAt(window, in + pixel, channel, channels);
    const int first = channel > window.radius ? channel - window.radius : 0;
    const int last = channel + window.radius < channels ? channel + window.radius : channels - 1;
    float sum = 0;
    for (int j = first; j <= last; ++j) sum += terms[pixel + j];
    const float x = ToFloat(in[i]);
    const float gradient = ToFloat(out_gradient[i]) * p.power - factor * x * sum;
    in_gradient[i] = FromFloat<T>(!after_relu || x > 0 ? gradient : 0.0f);
  }
}

Window WindowOf(const LrnSpec& spec, int channels) {
  const int64_t radius = spec.depth_radius < channels ? spec.depth_radius : channels;
  return {static_cast<int>(radius), spec.bias, spec.alpha, spec.beta};
}

}  // namespace

template <typename T>
void Lrn(const Target& target, const LrnSpec& spec, const T* in, T* out, int64_t count,
         int channels) {
  LaunchOver(target, count, LrnKernel<T>, WindowOf(spec, channels), in, out, channels, count);
}

template <typename T>
void LrnGradient(const Target& target, const LrnSpec& spec, const T* in, const T* out_gradient,
                 T* in_gradient, float* terms, bool after_relu, int64_t count, int channels) {
  const Window window = WindowOf(spec, channels);
  LaunchOver(target, count, LrnTermsKernel<T>, window, in, out_gradient, terms, channels, count);
  LaunchOver(target, count, LrnGradientKernel<T>, window, in, out_gradient, terms, after_relu,
             in_gradient, channels, count);
}

#define MUSTER_INSTANTIATE(T)                                                                    \
  template void Lrn(const Target&, const LrnSpec&, const T*, T*, int64_t, int);                  \
  template void LrnGradient(const Target&, const LrnSpec&, const T*, const T*, T*, float*, bool, \
                            int64_t, int);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)

}  // namespace muster::cuda
