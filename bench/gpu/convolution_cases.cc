// Muster's own kernels for 3 x 3 convolutions: image to columns and back, and depthwise.
#include <cuda_bf16.h>

#include <algorithm>
#include <memory>

#include "bench/gpu/kernel_case.h"
#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

constexpr int kTaps = 9;
constexpr int64_t kMostColumns = int64_t{64} << 20;  // in bytes, as in the backend

ConvShape ShapeOf(const KernelSizes& sizes, int batch, int groups) {
  return {.batch = batch,
          .in_height = sizes.side,
          .in_width = sizes.side,
          .in_channels = sizes.channels,
          .out_height = sizes.side,
          .out_width = sizes.side,
          .filters = sizes.channels,
          .groups = groups,
          .kernel_height = 3,
          .kernel_width = 3,
          .stride_height = 1,
          .stride_width = 1,
          .pad_top = 1,
          .pad_left = 1};
}

// The pixels in a 3 x 3 window.
struct Pixels {
  explicit Pixels(const KernelSizes& sizes) : side(sizes.side), channels(sizes.channels) {}

  // Returns the pixel at tap 0..8 of the window centered on `pixel`, or -1 if it is outside the
  // image.
  int64_t Seen(int64_t pixel, int tap) const {
    const int64_t x = pixel % side + tap % 3 - 1, y = pixel / side % side + tap / 3 - 1;
    if (x < 0 || x >= side || y < 0 || y >= side) return -1;
    return pixel + (tap / 3 - 1) * side + tap % 3 - 1;
  }
  int64_t side, channels;
};

template <typename T>
void ColumnCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const int64_t image = int64_t{sizes.side} * sizes.side * sizes.channels;
  const int64_t most = kMostColumns / (image * kTaps * static_cast<int64_t>(sizeof(float)));
  KernelSizes some = sizes;
  some.batch = static_cast<int>(std::clamp<int64_t>(most, 1, sizes.batch));
  const Tensors<T> t(device, some);
  const ConvShape shape = ShapeOf(some, some.batch, 1);
  const Target target = device.target();
  const T* const x = t.input[0];
  T* const out = t.output;
  const Pixels pixels(some);
  const int channels = some.channels;
  const int64_t columns = kTaps * some.count();
  auto* const made = device.Allocate<T>(columns);
  const int64_t bytes = t.bytes_of_one();
  use(t.Case(
      "image to columns", (kTaps + 1) * bytes, made, columns,
      [=] { ImageToColumns(target, shape, x, made); },
      [=](int64_t i) {
        const int64_t c = i % channels, tap = i / channels % kTaps;
        const int64_t seen = pixels.Seen(i / channels / kTaps, static_cast<int>(tap));
        return seen < 0 ? 0.0 : InputAt(seen * channels + c, 0);
      }));
  const float* const given = device.Make<float>(columns, [](int64_t i) { return InputAt(i, 1); });
  use(t.Case(
      "columns to image", bytes + 4 * columns, out, some.count(),
      [=] { ColumnsToImage<T>(target, shape, given, nullptr, out); },
      [=](int64_t i) {
        double sum = 0;
        for (int tap = 0; tap < kTaps; ++tap) {
          // The center of the window that has this pixel at `tap` lies in the opposite direction.
          const int64_t seen = pixels.Seen(i / channels, kTaps - 1 - tap);
          if (seen >= 0) sum += InputAt((seen * kTaps + tap) * channels + i % channels, 1);
        }
        return sum;
      }));
}

template <typename T>
void DepthwiseCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const Tensors<T> t(device, sizes);
  const int channels = sizes.channels;
  const ConvShape shape = ShapeOf(sizes, sizes.batch, channels);
  const Target target = device.target();
  const T *const x = t.input[0], *const y = t.input[1];
  T* const out = t.output;
  const int64_t weights = int64_t{channels} * kTaps;
  const float* const w = device.Make<float>(weights, [](int64_t i) { return InputAt(i, 9); });
  const Pixels pixels(sizes);
  use(t.Whole(
      "depthwise 3 x 3", 2, [=] { Depthwise(target, shape, x, w, nullptr, false, out); },
      [=](int64_t i) {
        double sum = 0;
        for (int tap = 0; tap < kTaps; ++tap) {
          const int64_t c = i % channels, seen = pixels.Seen(i / channels, tap);
          if (seen < 0) continue;
          sum += InputAt(seen * channels + c, 0) * InputAt(c * kTaps + tap, 9);
        }
        return sum;
      }));
  use(t.Whole(
      "depthwise 3 x 3, input gradient", 2,
      [=] { DepthwiseInputGradient<T>(target, shape, y, w, nullptr, out); },
      [=](int64_t i) {
        double sum = 0;
        for (int tap = 0; tap < kTaps; ++tap) {
          const int64_t c = i % channels, seen = pixels.Seen(i / channels, 8 - tap);
          if (seen < 0) continue;
          sum += InputAt(seen * channels + c, 1) * InputAt(c * kTaps + tap, 9);
        }
        return sum;
      }));
  auto* const scratch =
      device.Allocate<double>(static_cast<int64_t>(DepthwiseScratchBytes(shape) / sizeof(double)));
  auto* const gradient = device.Allocate<float>(weights);
  const int64_t rows = sizes.rows();
  use(t.Case(
      "depthwise 3 x 3, weights", 2 * t.bytes_of_one(), gradient, weights,
      [=] { DepthwiseWeightsGradient(target, shape, x, y, scratch, gradient); },
      [=](int64_t at) {
        const int64_t c = at / kTaps;
        double sum = 0;
        for (int64_t pixel = 0; pixel < rows; ++pixel) {
          const int64_t seen = pixels.Seen(pixel, static_cast<int>(at % kTaps));
          if (seen < 0) continue;
          sum += InputAt(seen * channels + c, 0) * InputAt(pixel * channels + c, 1);
        }
        return sum;
      }));
}

}  // namespace

template <typename T>
void ConvolutionCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  ColumnCases<T>(device, sizes, use);
  device.FreeAll();
  DepthwiseCases<T>(device, sizes, use);
}

template void ConvolutionCases<float>(BenchDevice&, const KernelSizes&, const UseCase&);
template void ConvolutionCases<Bf16>(BenchDevice&, const KernelSizes&, const UseCase&);

}  // namespace muster::cuda
