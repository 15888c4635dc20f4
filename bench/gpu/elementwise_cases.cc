// Elementwise kernels.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>

#include "bench/gpu/kernel_case.h"
#include "common/base/element_type.h"
#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

double Rounded(float value) {
  RoundTo(ElementType::kBFloat16, {&value, 1});
  return value;
}

template <typename T>
void DropoutCases(const Tensors<T>& t, const UseCase& use) {
  BenchDevice& device = t.device;
  const int batch = t.sizes.batch;
  const auto elements = static_cast<int>(t.sizes.count() / batch);
  std::vector<int64_t> ids(static_cast<size_t>(batch));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const int64_t* const sample_ids = device.Upload(ids);
  auto* const kept = device.Allocate<uint8_t>(t.sizes.count());
  const DropoutDraw draw{.key = {1, 2}, .epoch = 3, .rate = 0.5f, .scale = 2};
  // Tests compare the random numbers with the CPU's. The benchmark only checks that the mask
  // matches the output.
  auto mask = std::make_shared<std::vector<uint8_t>>();
  KernelCase dropout = t.Whole(
      "dropout", 2,
      [=, &t] {
        Dropout(t.device.target(), draw, sample_ids, kept, t.output, t.input[0], batch, elements);
      },
      [mask](int64_t i) { return (*mask)[static_cast<size_t>(i)] != 0 ? 2 * InputAt(i, 0) : 0; });
  dropout.bytes += t.sizes.count();
  dropout.result = [=, &t] {
    *mask = t.device.Download(kept, t.sizes.count());
    return t.device.Numbers(t.output, t.sizes.count());
  };
  use(dropout);

  std::vector<uint8_t> every_other(static_cast<size_t>(t.sizes.count()));
  for (size_t i = 0; i < every_other.size(); ++i) every_other[i] = i % 2;
  const uint8_t* const mask_of_gradient = device.Upload(every_other);
  KernelCase gradient = t.Whole(
      "dropout, gradient", 2,
      [=, &t] {
        DropoutGradient<T>(t.device.target(), 2, mask_of_gradient, t.output, t.input[1], nullptr,
                           t.sizes.count());
      },
      [](int64_t i) { return i % 2 != 0 ? 2 * InputAt(i, 1) : 0; });
  gradient.bytes += t.sizes.count();
  use(gradient);
}

// Kernels for the gradients of variables, which are always floats.
void SliceCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const int64_t count = sizes.count();
  const auto a = [](int64_t i) { return LongInputAt(i, 0); };
  const auto b = [](int64_t i) { return LongInputAt(i, 1); };
  const float *const at_a = device.Make<float>(count, a), *const at_b =
                                                              device.Make<float>(count, b);
  auto* const to = device.Allocate<float>(count);
  KernelCase round;
  round.name = "slice rounded to bf16";
  round.bytes = 8 * count;
  round.run = [=, &device] { RoundSlice(device.target(), ElementType::kBFloat16, to, count); };
  round.prepare = [=, &device] { device.Copy(to, at_a, static_cast<size_t>(4 * count)); };
  round.result = [=, &device] { return device.Numbers(to, count); };
  round.expected = [a](int64_t i) { return Rounded(a(i)); };
  use(round);

  KernelCase sum = round;
  sum.name = "slices added, rounded to bf16";
  sum.bytes = 12 * count;
  sum.prepare = nullptr;
  sum.output = to;
  sum.output_bytes = static_cast<size_t>(4 * count);
  sum.run = [=, &device] {
    AddSlices(device.target(), ElementType::kBFloat16, to, at_a, at_b, count);
  };
  sum.expected = [a, b](int64_t i) { return Rounded(a(i) + b(i)); };
  use(sum);
}

double NormalBelow(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double NormalDensity(double x) {
  return std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

template <typename T>
void ActivationCases(const Tensors<T>& t, const UseCase& use) {
  const int64_t count = t.sizes.count();
  const T *const x = t.input[0], *const y = t.input[1], *const z = t.input[2];
  T* const out = t.output;
  const Target target = t.device.target();
  use(t.Whole(
      "relu", 2, [=] { Elementwise(target, ReluSpec(), out, x, count); },
      [](int64_t i) { return std::max(0.0f, InputAt(i, 0)); }));
  use(t.Whole(
      "relu6", 2, [=] { Elementwise(target, Relu6Spec(), out, x, count); },
      [](int64_t i) { return std::clamp(InputAt(i, 0), 0.0f, 6.0f); }));
  use(t.Whole(
      "relu6, gradient", 3, [=] { ElementwiseGradient(target, Relu6Spec(), out, x, y, count); },
      [](int64_t i) { return InputAt(i, 0) > 0 ? InputAt(i, 1) : 0; }));
  use(t.Whole(
      "gelu", 2, [=] { Elementwise(target, GeluSpec(), out, x, count); },
      [](int64_t i) { return InputAt(i, 0) * NormalBelow(InputAt(i, 0)); }));
  use(t.Whole(
      "gelu, gradient", 3, [=] { ElementwiseGradient(target, GeluSpec(), out, x, y, count); },
      [](int64_t i) {
        const double at = InputAt(i, 0);
        return InputAt(i, 1) * (NormalBelow(at) + at * NormalDensity(at));
      }));
  use(t.Whole(
      "add, relu", 3, [=] { Add(target, out, x, y, true, count); },
      [](int64_t i) { return std::max(0.0f, InputAt(i, 0) + InputAt(i, 1)); }));
  use(t.Whole(
      "sum of gradients, masked", 4, [=] { AddGradients(target, out, x, y, z, count); },
      [](int64_t i) { return InputAt(i, 2) > 0 ? InputAt(i, 0) + InputAt(i, 1) : 0; }));
  KernelCase mask = t.Whole(
      "gradient masked by relu", 3, [=] { MaskByRelu(target, out, y, count); },
      [](int64_t i) { return InputAt(i, 1) > 0 ? InputAt(i, 0) : 0; });
  mask.prepare = [=, &t] { t.device.Copy(out, x, static_cast<size_t>(t.bytes_of_one())); };
  use(mask);
}

template <typename T>
void LayoutCases(const Tensors<T>& t, const UseCase& use) {
  const int64_t count = t.sizes.count(), rows = t.sizes.rows();
  const int channels = t.sizes.channels;
  const T* const x = t.input[0];
  T* const out = t.output;
  const Target target = t.device.target();
  const float* const bias =
      t.device.template Make<float>(channels, [](int64_t i) { return InputAt(i, 3); });
  KernelCase biased = t.Whole(
      "bias, relu", 2, [=] { AddBias(target, out, bias, true, rows, channels); },
      [channels](int64_t i) { return std::max(0.0f, InputAt(i, 0) + InputAt(i % channels, 3)); });
  biased.prepare = [=, &t] { t.device.Copy(out, x, static_cast<size_t>(t.bytes_of_one())); };
  use(biased);
  const float* const floats =
      t.device.template Make<float>(count, [](int64_t i) { return InputAt(i, 4); });
  use(t.Case(
      "floats to activations", count * static_cast<int64_t>(4 + sizeof(T)), out, count,
      [=] { Convert(target, out, floats, count); }, [](int64_t i) { return InputAt(i, 4); }));
  const int width = channels / 2;
  use(t.Case(
      "half of each row copied", 2 * rows * width * static_cast<int64_t>(sizeof(T)), out,
      rows * width, [=] { CopyRows(target, out, width, x, channels, width, rows); },
      [=](int64_t i) { return InputAt(i / width * channels + i % width, 0); }));
}

}  // namespace

template <typename T>
void ElementwiseCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const Tensors<T> tensors(device, sizes);
  ActivationCases(tensors, use);
  LayoutCases(tensors, use);
  DropoutCases(tensors, use);
  if constexpr (sizeof(T) == sizeof(float)) SliceCases(device, sizes, use);
}

template void ElementwiseCases<float>(BenchDevice&, const KernelSizes&, const UseCase&);
template void ElementwiseCases<Bf16>(BenchDevice&, const KernelSizes&, const UseCase&);

}  // namespace muster::cuda
