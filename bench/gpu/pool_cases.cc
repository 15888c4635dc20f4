// Pooling of 2 x 2 windows and of all pixels.
#include <cuda_bf16.h>

#include <algorithm>

#include "bench/gpu/kernel_case.h"
#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

// Maps elements of a tensor to those of a tensor with half its height and width, and back.
struct Windows {
  explicit Windows(const KernelSizes& sizes)
      : side(sizes.side), half(sizes.side / 2), channels(sizes.channels) {}

  // Returns the input element at place 0..3 of the window of output o.
  int64_t In(int64_t o, int place) const {
    const int64_t channel = o % channels, pixel = o / channels;
    const int64_t x = pixel % half, y = pixel / half % half, n = pixel / half / half;
    const int64_t row = n * side + 2 * y + place / 2;
    return (row * side + 2 * x + place % 2) * channels + channel;
  }
  int64_t Out(int64_t i) const {
    const int64_t channel = i % channels, pixel = i / channels;
    const int64_t x = pixel % side, y = pixel / side % side, n = pixel / side / side;
    return ((n * half + y / 2) * half + x / 2) * channels + channel;
  }
  int PlaceOf(int64_t i) const {
    const int64_t pixel = i / channels;
    return static_cast<int>(pixel / side % 2 * 2 + pixel % side % 2);
  }

  int64_t side, half, channels;
};

// The max pool index of output o.
uint8_t IndexAt(int64_t o) { return static_cast<uint8_t>(o / 3 % 4); }

template <typename T>
void WindowCases(const Tensors<T>& t, const UseCase& use) {
  const int side = t.sizes.side, half = side / 2;
  const PoolShape shape{.batch = t.sizes.batch,
                        .in_height = side,
                        .in_width = side,
                        .out_height = half,
                        .out_width = half,
                        .channels = t.sizes.channels,
                        .kernel_height = 2,
                        .kernel_width = 2,
                        .stride_height = 2,
                        .stride_width = 2,
                        .pad_top = 0,
                        .pad_left = 0};
  const Windows windows(t.sizes);
  const int64_t outputs = t.sizes.count() / 4;
  const int64_t bytes = t.bytes_of_one() + t.bytes_of_one() / 4;
  std::vector<uint8_t> chosen(static_cast<size_t>(outputs));
  for (size_t o = 0; o < chosen.size(); ++o) chosen[o] = IndexAt(static_cast<int64_t>(o));
  const uint8_t* const index = t.device.Upload(chosen);
  auto* const made_index = t.device.template Allocate<uint8_t>(outputs);
  const T *const x = t.input[0], *const y = t.input[1];
  T* const out = t.output;
  const Target target = t.device.target();
  use(t.Case(
      "max pool", bytes + outputs, out, outputs,
      [=] { MaxPool(target, shape, x, out, made_index, false); },
      [windows](int64_t o) {
        float most = -9;
        for (int p = 0; p < 4; ++p) most = std::max(most, InputAt(windows.In(o, p), 0));
        return most;
      }));
  use(t.Case(
      "max pool, gradient", bytes + outputs, out, t.sizes.count(),
      [=] { MaxPoolGradient(target, shape, y, index, out); },
      [windows](int64_t i) {
        const int64_t o = windows.Out(i);
        return IndexAt(o) == windows.PlaceOf(i) ? InputAt(o, 1) : 0;
      }));
  use(t.Case(
      "average pool", bytes, out, outputs, [=] { AvgPool(target, shape, x, out); },
      [windows](int64_t o) {
        double sum = 0;
        for (int p = 0; p < 4; ++p) sum += InputAt(windows.In(o, p), 0);
        return sum / 4;
      }));
  use(t.Case(
      "average pool, gradient", bytes, out, t.sizes.count(),
      [=] { AvgPoolGradient<T>(target, shape, y, nullptr, out); },
      [windows](int64_t i) { return InputAt(windows.Out(i), 1) / 4; }));
}

template <typename T>
void GlobalCases(const Tensors<T>& t, const UseCase& use) {
  const int pixels = t.sizes.side * t.sizes.side, channels = t.sizes.channels;
  const int batch = t.sizes.batch;
  const int64_t outputs = int64_t{batch} * channels;
  const int64_t bytes = t.bytes_of_one() + outputs * static_cast<int64_t>(sizeof(T));
  const T *const x = t.input[0], *const y = t.input[1];
  T* const out = t.output;
  const Target target = t.device.target();
  use(t.Case(
      "global average", bytes, out, outputs,
      [=] { GlobalAvgPool(target, x, out, batch, pixels, channels); },
      [=](int64_t o) {
        double sum = 0;
        for (int64_t p = 0; p < pixels; ++p) {
          sum += InputAt((o / channels * pixels + p) * channels + o % channels, 0);
        }
        return sum / pixels;
      }));
  use(t.Case(
      "global average, gradient", bytes, out, t.sizes.count(),
      [=] { GlobalAvgPoolGradient(target, y, out, batch, pixels, channels); },
      [=](int64_t i) {
        const int64_t image = i / channels / pixels;
        return InputAt(image * channels + i % channels, 1) / static_cast<float>(pixels);
      }));
}

}  // namespace

template <typename T>
void PoolCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const Tensors<T> tensors(device, sizes);
  WindowCases(tensors, use);
  GlobalCases(tensors, use);
}

template void PoolCases<float>(BenchDevice&, const KernelSizes&, const UseCase&);
template void PoolCases<Bf16>(BenchDevice&, const KernelSizes&, const UseCase&);

}  // namespace muster::cuda
