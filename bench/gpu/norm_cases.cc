// Batch and group normalization, and sums over rows.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "bench/gpu/kernel_case.h"
#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

constexpr float kEpsilon = 1e-3f;

// The per-channel values that kernels receive.
double MeanAt(int64_t c) { return InputAt(c, 5); }
double InverseAt(int64_t c) { return 1 + 0.5 * std::abs(InputAt(c, 6)); }
double SlopeAt(int64_t c) { return InputAt(c, 7); }
double ShiftAt(int64_t c) { return InputAt(c, 8); }
double OutputAt(int64_t i, int64_t c) {
  return (InputAt(i, 0) - MeanAt(c)) * SlopeAt(c) + ShiftAt(c);
}
// The gradient after the relu's mask.
double GradientAt(int64_t i, int64_t c) { return OutputAt(i, c) > 0 ? InputAt(i, 1) : 0; }

// The sums of value(index, channel) over all elements of each channel, computed only once.
using ChannelSums = std::shared_ptr<std::vector<double>>;
template <typename Value>
ChannelSums SumOver(const KernelSizes& sizes, const Value& value) {
  auto sums = std::make_shared<std::vector<double>>(static_cast<size_t>(sizes.channels));
  for (int64_t i = 0; i < sizes.count(); ++i) {
    const int64_t c = i % sizes.channels;
    (*sums)[static_cast<size_t>(c)] += value(i, c);
  }
  return sums;
}
double At(const ChannelSums& sums, int64_t c) { return (*sums)[static_cast<size_t>(c)]; }

// The arrays with one value per channel.
struct Arrays {
  Arrays(BenchDevice& device, int channels) {
    const auto make = [&](double (*value)(int64_t)) {
      return device.Make<float>(channels,
                                [value](int64_t c) { return static_cast<float>(value(c)); });
    };
    state = {make(MeanAt), make(MeanAt), make(InverseAt), make(SlopeAt)};
    shift = make(ShiftAt);
    gradients = {make(SlopeAt), make(MeanAt)};
    for (float*& array : written) array = device.Allocate<float>(channels);
  }
  NormState state;
  float* shift;
  NormGradients gradients;
  float* written[6] = {};
};

template <typename T>
void SumCases(const Tensors<T>& t, const Arrays& arrays, const UseCase& use) {
  const ColumnParts parts(t.sizes.rows(), t.sizes.channels);
  const int channels = t.sizes.channels;
  const auto rows = static_cast<double>(t.sizes.rows());
  auto* const scratch = t.device.template Allocate<double>(
      static_cast<int64_t>(parts.scratch_bytes(2) / sizeof(double)));
  const Target target = t.device.target();
  const T *const x = t.input[0], *const y = t.input[1];
  const ChannelSums sums = SumOver(t.sizes, [](int64_t i, int64_t) { return InputAt(i, 0); });
  const ChannelSums squares =
      SumOver(t.sizes, [](int64_t i, int64_t) { return InputAt(i, 0) * InputAt(i, 0); });
  float* const to = arrays.written[0];
  use(t.Case(
      "sums over rows", t.bytes_of_one(), to, channels,
      [=] { ColumnSums(target, parts, x, scratch, to); },
      [sums](int64_t c) { return At(sums, c); }));

  const NormState state{to, arrays.written[1], arrays.written[2], arrays.written[3]};
  const float* const scale = arrays.state.slope;
  use(t.Case(
      "batch norm: statistics", t.bytes_of_one(), state.inverse, channels,
      [=] { BatchStatistics(target, parts, x, scratch, kEpsilon, scale, state); },
      [=](int64_t c) {
        const double mean = At(sums, c) / rows;
        return 1 / std::sqrt(At(squares, c) / rows - mean * mean + kEpsilon);
      }));

  NormBackward norm{.state = arrays.state,
                    .shift = arrays.shift,
                    .activation = Activation::kRelu,
                    .from_output = false,
                    .statistic_weight = 1,
                    .unbiased = false,
                    .scale_gradient = to,
                    .shift_gradient = arrays.written[1],
                    .mean_statistic = arrays.written[2],
                    .variance_statistic = arrays.written[3],
                    .gradients = {arrays.written[4], arrays.written[5]}};
  const ChannelSums products = SumOver(t.sizes, [](int64_t i, int64_t c) {
    return GradientAt(i, c) * (InputAt(i, 0) - MeanAt(c)) * InverseAt(c);
  });
  use(t.Case(
      "batch norm: sums of gradients", 2 * t.bytes_of_one(), to, channels,
      [=] { NormSums<T>(target, parts, norm, x, nullptr, y, nullptr, scratch); },
      [products](int64_t c) { return At(products, c); }));
}

template <typename T>
void PixelCases(const Tensors<T>& t, const Arrays& arrays, const UseCase& use) {
  const int channels = t.sizes.channels;
  const int64_t rows = t.sizes.rows();
  const Target target = t.device.target();
  const T *const x = t.input[0], *const y = t.input[1];
  T* const out = t.output;
  const NormState state = arrays.state;
  const float* const shift = arrays.shift;
  use(t.Whole(
      "batch norm: normalize, relu", 2,
      [=] {
        Normalise<T>(target, state, shift, Activation::kRelu, x, nullptr, out, rows, channels);
      },
      [channels](int64_t i) { return std::max(0.0, OutputAt(i, i % channels)); }));
  const NormBackward norm{.state = state,
                          .shift = shift,
                          .activation = Activation::kRelu,
                          .gradients = arrays.gradients};
  use(t.Whole(
      "batch norm: input gradient", 3,
      [=] { NormInputGradient<T>(target, norm, x, nullptr, y, false, out, rows, channels); },
      [channels](int64_t i) {
        const int64_t c = i % channels;
        const double distance = InputAt(i, 0) - MeanAt(c);
        // In this case, the gradient arrays contain slopes and means.
        return SlopeAt(c) * (GradientAt(i, c) - SlopeAt(c) - distance * MeanAt(c));
      }));
}

// What group_norm computes of the first input and, as the gradient, the second.
class Groups {
 public:
  Groups(const KernelSizes& sizes, const GroupShape& shape) : shape_(shape) {
    mean_ = Means(sizes, [](int64_t i) { return InputAt(i, 0); });
    const auto squares =
        Means(sizes, [this](int64_t i) { return std::pow(InputAt(i, 0) - Of(mean_, i), 2); });
    for (const double square : squares) inverse_.push_back(1 / std::sqrt(square + kEpsilon));
    gradient_ = Means(sizes, [this](int64_t i) { return Gradient(i); });
    product_ = Means(sizes, [this](int64_t i) { return Gradient(i) * Normalized(i); });
  }
  double Output(int64_t i) const {
    const int64_t c = i % shape_.channels;
    return Normalized(i) * SlopeAt(c) + ShiftAt(c);
  }
  double InputGradient(int64_t i) const {
    return Of(inverse_, i) * (Gradient(i) - Of(gradient_, i) - Normalized(i) * Of(product_, i));
  }

 private:
  template <typename Value>
  std::vector<double> Means(const KernelSizes& sizes, const Value& value) const {
    std::vector<double> means(static_cast<size_t>(shape_.count));
    for (int64_t i = 0; i < sizes.count(); ++i) {
      means[GroupOf(i)] += value(i) / static_cast<double>(shape_.values());
    }
    return means;
  }
  size_t GroupOf(int64_t i) const {
    const int64_t row = i / shape_.channels, channel = i % shape_.channels;
    return static_cast<size_t>(row / shape_.pixels * shape_.groups + channel / shape_.width());
  }
  double Of(const std::vector<double>& numbers, int64_t i) const { return numbers[GroupOf(i)]; }
  double Normalized(int64_t i) const { return (InputAt(i, 0) - Of(mean_, i)) * Of(inverse_, i); }
  double Gradient(int64_t i) const { return InputAt(i, 1) * SlopeAt(i % shape_.channels); }

  const GroupShape shape_;
  std::vector<double> mean_, inverse_, gradient_, product_;
};

template <typename T>
void GroupCases(const Tensors<T>& t, const Arrays& arrays, const UseCase& use) {
  const int channels = t.sizes.channels, groups = channels % 8 == 0 ? 8 : 1;
  const GroupShape shape{int64_t{t.sizes.batch} * groups, t.sizes.side * t.sizes.side, channels,
                         groups};
  auto* const numbers = t.device.template Allocate<float>(4 * shape.count);
  const GroupState state{numbers, numbers + shape.count};
  const GroupState means{numbers + 2 * shape.count, numbers + 3 * shape.count};
  const Target target = t.device.target();
  const T *const x = t.input[0], *const y = t.input[1];
  T* const out = t.output;
  const float *const scale = arrays.state.slope, *const shift = arrays.shift;
  const auto expected = std::make_shared<Groups>(t.sizes, shape);
  const auto forward = [=] {
    GroupNorm(target, shape, kEpsilon, scale, shift, false, x, out, state);
  };
  use(t.Whole("group norm", 4, forward, [expected](int64_t i) { return expected->Output(i); }));
  KernelCase gradient = t.Whole(
      "group norm, input gradient", 7,
      [=] { GroupNormInputGradient(target, shape, state, means, scale, x, y, out); },
      [expected](int64_t i) { return expected->InputGradient(i); });
  gradient.prepare = forward;  // writes the state
  use(gradient);
}

}  // namespace

template <typename T>
void NormCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const Tensors<T> tensors(device, sizes);
  const Arrays arrays(device, sizes.channels);
  SumCases(tensors, arrays, use);
  PixelCases(tensors, arrays, use);
  GroupCases(tensors, arrays, use);
}

template void NormCases<float>(BenchDevice&, const KernelSizes&, const UseCase&);
template void NormCases<Bf16>(BenchDevice&, const KernelSizes&, const UseCase&);

}  // namespace muster::cuda
