#include "worker/image/augment.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "worker/image/file_kinds.h"

namespace muster {
namespace {

constexpr uint32_t kColorBlock = 10;

// Draws a factor from 1 - spread to 1 + spread, but at least 0.
int32_t DrawFactor(double spread, uint32_t bits) {
  MUSTER_CHECK(spread >= 0 && spread <= 16);
  const int64_t distance = std::llround(spread * kColorUnit);
  const int64_t low = std::max<int64_t>(kColorUnit - distance, 0), high = kColorUnit + distance;
  return static_cast<int32_t>(low + PickBelow(bits, high - low + 1));
}

uint8_t Blend(int32_t centre, int32_t x, int32_t factor) {
  const int32_t moved = ((x - centre) * factor + kColorUnit / 2) >> 16;
  return static_cast<uint8_t>(std::clamp(centre + moved, 0, 255));
}

int32_t MeanGrey(int64_t pixels, int64_t channels, const uint8_t* sample) {
  int64_t sum = 0;
  for (int64_t i = 0; i < pixels; ++i) {
    sum += channels == 1 ? sample[i] : Grey(sample[3 * i], sample[3 * i + 1], sample[3 * i + 2]);
  }
  return static_cast<int32_t>((sum + pixels / 2) / pixels);
}

}  // namespace

ColorFactors DrawColor(const ColorJitter& settings, const RandomStream& stream) {
  const auto bits = stream.Block(kColorBlock);
  return {.brightness = DrawFactor(settings.brightness, bits[1]),
          .contrast = DrawFactor(settings.contrast, bits[2]),
          .saturation = DrawFactor(settings.saturation, bits[3])};
}

void ApplyColor(const ColorFactors& factors, ImageSize size, int64_t channels, uint8_t* sample) {
  const int64_t pixels = size.height * size.width;
  if (factors.brightness != kColorUnit) {
    for (int64_t i = 0; i < pixels * channels; ++i) {
      sample[i] = Blend(0, sample[i], factors.brightness);
    }
  }
  if (factors.contrast != kColorUnit) {
    const int32_t mean = MeanGrey(pixels, channels, sample);
    for (int64_t i = 0; i < pixels * channels; ++i) {
      sample[i] = Blend(mean, sample[i], factors.contrast);
    }
  }
  if (factors.saturation != kColorUnit && channels == 3) {
    for (uint8_t* rgb = sample; rgb != sample + 3 * pixels; rgb += 3) {
      const int32_t grey = Grey(rgb[0], rgb[1], rgb[2]);
      for (int k = 0; k < 3; ++k) rgb[k] = Blend(grey, rgb[k], factors.saturation);
    }
  }
}

Normalizer::Normalizer(std::span<const double> mean, std::span<const double> stddev) {
  MUSTER_CHECK((mean.size() == 1 || mean.size() == 3) && stddev.size() == mean.size());
  scale_.channels = std::ssize(mean);
  for (size_t k = 0; k < mean.size(); ++k) {
    scale_.centre[k] = static_cast<float>(255 * mean[k]);
    scale_.scale[k] = static_cast<float>(1 / (255 * stddev[k]));
  }
  for (size_t i = 0; i < kBlock; ++i) {
    centres_[i] = scale_.centre[i % mean.size()];
    scales_[i] = scale_.scale[i % mean.size()];
  }
}

void Normalizer::Apply(const uint8_t* sample, int64_t count, float* out) const {
  for (; count >= kBlock; count -= kBlock, sample += kBlock, out += kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) {
      out[i] = (static_cast<float>(sample[i]) - centres_[i]) * scales_[i];
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    out[i] = (static_cast<float>(sample[i]) - centres_[i]) * scales_[i];
  }
}

void Erase(const ImageBox& box, ImageSize size, int64_t channels, float* sample) {
  for (int64_t row = box.top; row < box.top + box.height; ++row) {
    std::fill_n(sample + (row * size.width + box.left) * channels, box.width * channels, 0.0f);
  }
}

}  // namespace muster
