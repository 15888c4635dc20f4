// Kernels over the channels of a pixel or the classes of a sample: LRN, softmax, losses.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>

#include "bench/gpu/kernel_case.h"
#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

constexpr int kRadius = 2;
constexpr float kBias = 1, kAlpha = 0.125f, kBeta = 0.75f;

// The channels of the window of element i.
struct Window {
  Window(int64_t i, int channels)
      : first(i - std::min<int64_t>(i % channels, kRadius)),
        last(i + std::min<int64_t>(channels - 1 - i % channels, kRadius)) {}
  int64_t first, last;
};

double NormOf(int64_t i, int channels) {
  const Window window(i, channels);
  double sum = 0;
  for (int64_t j = window.first; j <= window.last; ++j) sum += std::pow(InputAt(j, 0), 2);
  return kBias + kAlpha * sum;
}

double LrnGradientAt(int64_t i, int channels) {
  const Window window(i, channels);
  double sum = 0;
  for (int64_t j = window.first; j <= window.last; ++j) {
    const double n = NormOf(j, channels);
    sum += InputAt(j, 1) * InputAt(j, 0) * std::pow(n, -kBeta) / n;
  }
  const double power = std::pow(NormOf(i, channels), -kBeta);
  return InputAt(i, 1) * power - 2 * kAlpha * kBeta * InputAt(i, 0) * sum;
}

template <typename T>
void LrnCases(const Tensors<T>& t, const UseCase& use) {
  const int channels = t.sizes.channels;
  const int64_t count = t.sizes.count();
  const LrnSpec spec{.depth_radius = kRadius, .bias = kBias, .alpha = kAlpha, .beta = kBeta};
  const Target target = t.device.target();
  const T *const x = t.input[0], *const y = t.input[1];
  T* const out = t.output;
  auto* const terms = t.device.template Allocate<float>(count);
  use(t.Whole(
      "lrn", 2, [=] { Lrn(target, spec, x, out, count, channels); },
      [channels](int64_t i) { return InputAt(i, 0) * std::pow(NormOf(i, channels), -kBeta); }));
  KernelCase gradient = t.Whole(
      "lrn, gradient", 5,
      [=] { LrnGradient(target, spec, x, y, out, terms, false, count, channels); },
      [channels](int64_t i) { return LrnGradientAt(i, channels); });
  gradient.bytes += 8 * count;
  use(gradient);
}

// The row that contains element i.
struct Row {
  Row(int64_t i, int length) : first(i - i % length), length(length) {}
  double Softmax(int64_t i) const {
    double sum = 0;
    for (int64_t j = first; j < first + length; ++j) sum += std::exp(InputAt(j, 0));
    return std::exp(InputAt(i, 0)) / sum;
  }
  double Product() const {
    double sum = 0;
    for (int64_t j = first; j < first + length; ++j) sum += InputAt(j, 0) * InputAt(j, 1);
    return sum;
  }
  int64_t first;
  int length;
};

template <typename T>
void SoftmaxCases(const Tensors<T>& t, const UseCase& use) {
  const int channels = t.sizes.channels;
  const int64_t rows = t.sizes.rows();
  const Target target = t.device.target();
  const T *const x = t.input[0], *const y = t.input[1];
  T* const out = t.output;
  use(t.Whole(
      "softmax", 2, [=] { Softmax(target, x, out, rows, channels); },
      [channels](int64_t i) { return Row(i, channels).Softmax(i); }));
  use(t.Whole(
      "softmax, gradient", 3, [=] { SoftmaxGradient(target, x, y, out, rows, channels); },
      [channels](int64_t i) {
        return InputAt(i, 0) * (InputAt(i, 1) - Row(i, channels).Product());
      }));
}

int LabelAt(int64_t n, int classes) { return static_cast<int>((7 * n + 3) % classes); }

// Losses over as many samples of 1,000 classes as fit into the tensors.
template <typename T>
void LossCases(const Tensors<T>& t, const UseCase& use) {
  const int classes = static_cast<int>(std::min<int64_t>(1000, t.sizes.count()));
  const int batch = static_cast<int>(t.sizes.count() / classes);
  const int64_t count = int64_t{batch} * classes;
  std::vector<int32_t> numbers(static_cast<size_t>(batch));
  for (int n = 0; n < batch; ++n) numbers[static_cast<size_t>(n)] = LabelAt(n, classes);
  BenchDevice& device = t.device;
  const int32_t* const labels = device.Upload(numbers);
  auto* const results = device.Allocate<SampleLoss>(batch);
  auto* const predictions = device.Allocate<int32_t>(batch);
  auto* const probabilities = device.Allocate<float>(count);
  float* const given = device.Make<float>(count, [](int64_t i) { return InputAt(i, 2); });
  const Target target = device.target();
  T* const out = t.output;
  const LossArgs args{.logits = t.input[0], .labels = labels};
  const LossBatch made{batch, classes, 0, results, probabilities},
      kept{batch, classes, 0, results, given};
  const auto bytes = static_cast<int64_t>(sizeof(T)) * count;
  use(t.Case(
      "cross entropy", bytes + 4 * count, probabilities, count,
      [=] { SampleLosses<T>(target, SoftmaxCrossEntropySpec(), args, made, predictions); },
      [classes](int64_t i) { return Row(i, classes).Softmax(i); }));
  use(t.Case(
      "cross entropy, gradient", bytes + 4 * count, out, count,
      [=] { LossGradient(target, SoftmaxCrossEntropySpec(), args, kept, 0.5f, false, out); },
      [classes](int64_t i) {
        const bool own = i % classes == LabelAt(i / classes, classes);
        return 0.5 * (InputAt(i, 2) - (own ? 1 : 0));
      }));
  KernelCase error = t.Case(
      "mean squared error", bytes, probabilities, 0,
      [=] { SampleLosses<T>(target, MeanSquaredErrorSpec(), args, made, predictions); },
      [classes](int64_t n) {
        double sum = 0;
        for (int64_t j = 0; j < classes; ++j) {
          sum += std::pow(InputAt(n * classes + j, 0) - (j == LabelAt(n, classes) ? 1 : 0), 2);
        }
        return sum / classes;
      });
  error.output = results;
  error.output_bytes = static_cast<size_t>(batch) * sizeof(SampleLoss);
  error.result = [=, &device] {
    std::vector<float> losses;
    for (const SampleLoss& sample : device.Download(results, batch)) {
      losses.push_back(static_cast<float>(sample.loss));
    }
    return losses;
  };
  use(error);
  use(t.Case(
      "mean squared error, gradient", 2 * bytes, out, count,
      [=] { LossGradient(target, MeanSquaredErrorSpec(), args, made, 0.5f, false, out); },
      [classes](int64_t i) {
        const bool own = i % classes == LabelAt(i / classes, classes);
        return (InputAt(i, 0) - (own ? 1 : 0)) / classes;
      }));
}

}  // namespace

template <typename T>
void RowCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const Tensors<T> tensors(device, sizes);
  LrnCases(tensors, use);
  SoftmaxCases(tensors, use);
  LossCases(tensors, use);
}

template void RowCases<float>(BenchDevice&, const KernelSizes&, const UseCase&);
template void RowCases<Bf16>(BenchDevice&, const KernelSizes&, const UseCase&);

}  // namespace muster::cuda
