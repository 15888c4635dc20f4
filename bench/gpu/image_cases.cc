// Assembling and standardizing batches of stored images.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>

#include "bench/gpu/kernel_case.h"
#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {
namespace {

constexpr int kColours = 3;

uint8_t ByteAt(int64_t i) { return static_cast<uint8_t>(100 + 12 * InputAt(i, 0)); }

// The mean and standard deviation of image `image`, which has `bytes` bytes.
struct Moments {
  Moments(int64_t image, int64_t bytes) {
    double sum = 0, squares = 0;
    for (int64_t i = image * bytes; i < (image + 1) * bytes; ++i) {
      sum += ByteAt(i);
      squares += ByteAt(i) * ByteAt(i);
    }
    const auto n = static_cast<double>(bytes);
    mean = sum / n;
    spread = std::max(std::sqrt(squares / n - mean * mean), 1 / std::sqrt(n));
  }
  double mean, spread;
};

}  // namespace

template <typename T>
void ImageCases(BenchDevice& device, const KernelSizes& sizes, const UseCase& use) {
  const Tensors<T> t(device, sizes);
  const int side = sizes.side, count = 8 * sizes.batch;
  const int64_t pixels = int64_t{side} * side, bytes = pixels * kColours;
  const ImagePlan plan{.height = side,
                       .width = side,
                       .channels = kColours,
                       .crop_height = side,
                       .crop_width = side,
                       .padding = 0,
                       .key = {1, 2},
                       .epoch = 0,
                       .augment = false,
                       .flip = false,
                       .standardize = true,
                       .brightness = 0,
                       .contrast_low = 1,
                       .contrast_high = 1};
  std::vector<uint8_t> stored(static_cast<size_t>(count * bytes));
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = ByteAt(static_cast<int64_t>(i));
  // In reverse order, so that the kernel must look up images by ID.
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = count - 1 - i;
  const ImageBatch batch{.images = device.Upload(stored),
                         .sample_ids = device.Upload(ids),
                         .count = count,
                         .sums = device.Allocate<ImageSums>(count * kColours),
                         .maps = device.Allocate<ImageMap>(count * kColours),
                         .places = device.Allocate<ImagePlace>(count)};
  auto* const out = device.Allocate<T>(count * bytes);
  const Target target = device.target();
  use(t.Case(
      "batch of stored images", count * bytes * static_cast<int64_t>(2 + sizeof(T)), out,
      count * bytes, [=] { MakeImages(target, plan, batch, out); },
      [=](int64_t i) {
        const int64_t image = count - 1 - i / bytes;
        const int64_t colour = i % kColours, pixel = i / kColours % pixels;
        const Moments moments(image, bytes);
        const int64_t at = image * bytes + colour * pixels + pixel;
        return (ByteAt(at) - moments.mean) / moments.spread;
      }));
}

template void ImageCases<float>(BenchDevice&, const KernelSizes&, const UseCase&);
template void ImageCases<Bf16>(BenchDevice&, const KernelSizes&, const UseCase&);

}  // namespace muster::cuda
