// Elementwise kernels.
#include <cfloat>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/map.h"
#include "worker/backend/cuda/rows_walk.h"

namespace muster::cuda {
namespace {

// Elementwise layers: y = Value(layer, x), dx = Gradient(layer, v, dy), where v is what the layer's
// backward reads: x or y. fmaxf is avoided because NaN must propagate. worker/backend/cpu has the
// formulas.
__device__ float Value(const ReluSpec&, float x) { return x < 0 ? 0.0f : x; }
__device__ float Gradient(const ReluSpec&, float y, float dy) { return y > 0 ? dy : 0.0f; }

__device__ float Value(const Relu6Spec&, float x) {
  const float positive = x < 0 ? 0.0f : x;
  return positive > 6 ? 6.0f : positive;
}
__device__ float Gradient(const Relu6Spec&, float y, float dy) {
  return y > 0 && y < 6 ? dy : 0.0f;
}

__device__ inline float Sigmoid(float x) { return 1 / (1 + expf(-x)); }

constexpr float kRootOfTwoOverPi = 0.79788456f, kRootOfHalf = 0.70710678f;
constexpr float kInverseRoot = 0.39894228f;  // 1 / √(2π)
constexpr float kCubic = 0.044715f;
__device__ inline float TwiceU(float x) { return 2 * kRootOfTwoOverPi * (x + kCubic * x * x * x); }

__device__ float Value(const GeluSpec& gelu, float x) {
  return gelu.tanh ? x * Sigmoid(TwiceU(x)) : x * (0.5f * erfcf(-kRootOfHalf * x));
}
__device__ float Gradient(const GeluSpec& gelu, float x, float dy) {
  // The slope is 0 or 1 beyond ±16, where the powers below might overflow.
  x = x < -16 ? -16 : x;
  x = x > 16 ? 16 : x;
  if (!gelu.tanh) {
    return dy * (0.5f * erfcf(-kRootOfHalf * x) + x * (kInverseRoot * expf(-0.5f * x * x)));
  }
  const float share = Sigmoid(TwiceU(x));
  const float slope = 2 * kRootOfTwoOverPi * (1 + 3 * kCubic * x * x);
  return dy * (share + x * (share * (1 - share)) * slope);
}

__device__ float Value(const SiluSpec&, float x) { return x * Sigmoid(x); }
__device__ float Gradient(const SiluSpec&, float x, float dy) {
  const float share = Sigmoid(x);
  return dy * share * (1 + x * (1 - share));
}

__device__ float Value(const SigmoidSpec&, float x) { return Sigmoid(x); }
__device__ float Gradient(const SigmoidSpec&, float y, float dy) { return dy * (y * (1 - y)); }

__device__ float Value(const TanhSpec&, float x) { return tanhf(x); }
__device__ float Gradient(const TanhSpec&, float y, float dy) { return dy * (1 - y * y); }

__device__ float Value(const LeakyReluSpec& leaky, float x) { return x < 0 ? leaky.slope * x : x; }
__device__ float Gradient(const LeakyReluSpec& leaky, float y, float dy) {
  return y > 0 ? dy : leaky.slope * dy;
}

template <ElementwiseSpec Spec>
struct ValueOf {
  Spec spec;
  __device__ float operator()(float x) const { return Value(spec, x); }
};
template <ElementwiseSpec Spec>
struct GradientOf {
  Spec spec;
  __device__ float operator()(float v, float dy) const { return Gradient(spec, v, dy); }
};

struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Mean {
  __device__ float operator()(float a, float b) const { return 0.5f * (a + b); }
};
struct SumRelu {
  __device__ float operator()(float a, float b) const { return Value(ReluSpec(), a + b); }
};
struct SumMasked {
  __device__ float operator()(float a, float b, float y) const {
    return Gradient(ReluSpec(), y, a + b);
  }
};

// Rounds like RoundTo in common/base/element_type.h.
template <ElementType kType>
struct Rounded {
  __device__ float operator()(float x) const {
    if constexpr (kType == ElementType::kBFloat16) return __bfloat162float(__float2bfloat16_rn(x));
    if constexpr (kType == ElementType::kFloat16) return __half2float(__float2half_rn(x));
    return x;
  }
};

// A sum of two slices, as the server adds them: denormals count as zero.
__device__ inline float Flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }
template <typename Round>
struct SliceSum {
  Round round;
  __device__ float operator()(float a, float b) const {
    return round(Flushed(Flushed(a) + Flushed(b)));
  }
};

// Calls body(Rounded<type>()).
template <typename Body>
void WithRounding(ElementType type, const Body& body) {
  switch (type) {
    case ElementType::kFloat32:
      return body(Rounded<ElementType::kFloat32>());
    case ElementType::kBFloat16:
      return body(Rounded<ElementType::kBFloat16>());
    case ElementType::kFloat16:
      return body(Rounded<ElementType::kFloat16>());
  }
}

template <int W, typename T>
__global__ void BiasKernel(RowsWalk walk, T* values, const float* bias, bool relu) {
  const uint32_t pack = walk.pack();
  if (pack >= walk.packs) return;
  const Pack<float, W> biases = LoadPack<W>(bias + pack * W);
  const auto at = [&](uint32_t row) { return values + (row * walk.packs + pack) * W; };
  walk.ForRows([&](uint32_t row) { return LoadPack<W>(at(row)); },
               [&](uint32_t row, Pack<T, W> values_of_row) {
                 for (int j = 0; j < W; ++j) {
                   const float y = ToFloat(values_of_row.at[j]) + biases.at[j];
                   values_of_row.at[j] = FromFloat<T>(relu ? Value(ReluSpec(), y) : y);
                 }
                 StorePack<W>(at(row), values_of_row);
               });
}

}  // namespace

template <ElementwiseSpec Spec, typename T>
void Elementwise(const Target& target, const Spec& spec, T* to, const T* from, int64_t count) {
  Map(target, ValueOf<Spec>{spec}, to, count, from);
}

template <ElementwiseSpec Spec, typename T>
void ElementwiseGradient(const Target& target, const Spec& spec, T* to, const T* kept,
                         const T* gradient, int64_t count) {
  Map(target, GradientOf<Spec>{spec}, to, count, kept, gradient);
}

template <typename T>
void Add(const Target& target, T* to, const T* a, const T* b, bool relu, int64_t count) {
  if (relu) return Map(target, SumRelu(), to, count, a, b);
  Map(target, Sum(), to, count, a, b);
}

template <typename T>
void AddGradients(const Target& target, T* to, const T* a, const T* b, const T* relu_output,
                  int64_t count) {
  if (b == nullptr && relu_output == nullptr) return Map(target, Same(), to, count, a);
  if (b == nullptr) return ElementwiseGradient(target, ReluSpec(), to, relu_output, a, count);
  if (relu_output == nullptr) return Map(target, Sum(), to, count, a, b);
  Map(target, SumMasked(), to, count, a, b, relu_output);
}

template <typename T>
void Average(const Target& target, T* to, const T* from, int64_t count) {
  Map(target, Mean(), to, count, static_cast<const T*>(to), from);
}

template <typename T>
void MaskByRelu(const Target& target, T* gradient, const T* relu_output, int64_t count) {
  ElementwiseGradient(target, ReluSpec(), gradient, relu_output, gradient, count);
}

template <typename To, typename From>
void Convert(const Target& target, To* to, const From* from, int64_t count) {
  Map(target, Same(), to, count, from);
}

void RoundSlice(const Target& target, ElementType wire, float* values, int64_t count) {
  if (wire == ElementType::kFloat32) return;
  WithRounding(wire, [&](auto round) {
    Map<decltype(round), float, float>(target, round, values, count, values);
  });
}

void AddSlices(const Target& target, ElementType wire, float* to, const float* a, const float* b,
               int64_t count) {
  WithRounding(wire,
               [&](auto round) { Map(target, SliceSum<decltype(round)>{round}, to, count, a, b); });
}

template <typename T>
void AddBias(const Target& target, T* values, const float* bias, bool relu, int64_t rows,
             int channels) {
  if (bias == nullptr) {
    if (relu) Elementwise(target, ReluSpec(), values, values, rows * channels);
    return;
  }
  WithWidth(
      channels,
      [&](auto width) {
        LaunchRows(target, rows, channels / width, BiasKernel<width, T>, values, bias, relu);
      },
      values, bias);
}

#define MUSTER_INSTANTIATE_LAYER(Spec, T)                                       \
  template void Elementwise(const Target&, const Spec&, T*, const T*, int64_t); \
  template void ElementwiseGradient(const Target&, const Spec&, T*, const T*, const T*, int64_t);
#define MUSTER_INSTANTIATE(T)                                                           \
  MUSTER_INSTANTIATE_LAYER(ReluSpec, T)                                                 \
  MUSTER_INSTANTIATE_LAYER(Relu6Spec, T)                                                \
  MUSTER_INSTANTIATE_LAYER(GeluSpec, T)                                                 \
  MUSTER_INSTANTIATE_LAYER(SiluSpec, T)                                                 \
  MUSTER_INSTANTIATE_LAYER(SigmoidSpec, T)                                              \
  MUSTER_INSTANTIATE_LAYER(TanhSpec, T)                                                 \
  MUSTER_INSTANTIATE_LAYER(LeakyReluSpec, T)                                            \
  template void Add(const Target&, T*, const T*, const T*, bool, int64_t);              \
  template void AddGradients(const Target&, T*, const T*, const T*, const T*, int64_t); \
  template void Average(const Target&, T*, const T*, int64_t);                          \
  template void MaskByRelu(const Target&, T*, const T*, int64_t);                       \
  template void Convert(const Target&, T*, const float*, int64_t);                      \
  template void AddBias(const Target&, T*, const float*, bool, int64_t, int);
MUSTER_FOR_ELEMENTS(MUSTER_INSTANTIATE)
template void Convert(const Target&, float*, const Bf16*, int64_t);
template void Convert(const Target&, float*, const Fp16*, int64_t);

}  // namespace muster::cuda
