#include "worker/trainer/sample_images.h"

#include <algorithm>
#include <string>
#include <vector>

namespace muster {
namespace {

constexpr size_t kMostBytes = 1 << 20;

// Converts planes to interleaved pixels.
std::string Interleaved(std::span<const uint8_t> planes, size_t channels) {
  const size_t count = planes.size() / channels;
  std::string pixels(planes.size(), '\0');
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t i = 0; i < count; ++i) {
      pixels[i * channels + channel] = static_cast<char>(planes[channel * count + i]);
    }
  }
  return pixels;
}

}  // namespace

void AddSampleImages(const Dataset& set, int64_t images, int64_t block_size,
                     std::span<const int32_t> predictions, wire::EvaluatedBlock& block) {
  const Shape shape = set.shape();
  const int64_t most = static_cast<int64_t>(kMostBytes) / shape.elements();
  const int64_t fit = most * set.size() / std::min(block_size, set.size());
  const int64_t shown = std::min({images, set.size(), fit});
  const int64_t begin = block.block() * block_size;
  std::vector<uint8_t> buffer;
  for (int64_t i = 0; i < shown; ++i) {
    const int64_t index = i * set.size() / shown;
    if (index < begin || index - begin >= std::ssize(predictions)) continue;
    wire::SampleImage& image = *block.add_image();
    image.set_index(index);
    image.set_height(static_cast<uint32_t>(shape.height));
    image.set_width(static_cast<uint32_t>(shape.width));
    image.set_channels(static_cast<uint32_t>(shape.channels));
    image.set_pixels(Interleaved(set.Planes(index, buffer), static_cast<size_t>(shape.channels)));
    image.set_label(static_cast<uint32_t>(set.Label(index)));
    image.set_predicted(static_cast<uint32_t>(predictions[static_cast<size_t>(index - begin)]));
  }
}

}  // namespace muster
