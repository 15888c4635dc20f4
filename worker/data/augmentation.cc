#include "worker/data/augmentation.h"

#include "common/base/error.h"
#include "common/base/random.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

// Returns 0 … choices-1. The bias of multiply-shift is below choices / 2^32.
int64_t Pick(uint32_t bits, int64_t choices) {
  return static_cast<int64_t>((static_cast<uint64_t>(bits) * static_cast<uint64_t>(choices)) >> 32);
}

int64_t CropSide(const char* key, bool given, int64_t wanted, int64_t stored) {
  if (!given) return stored;
  if (wanted < 1 || wanted > stored) {
    throw Error(ExitCode::kUsage,
                "data.preprocess.{}: expected 1 to {} (the size of the stored images), found {}",
                key, stored, wanted);
  }
  return wanted;
}

}  // namespace

Shape CropShape(const config::Preprocess& settings, const Shape& stored) {
  return {.height = CropSide("crop_height", settings.has_crop_height(), settings.crop_height(),
                             stored.height),
          .width = CropSide("crop_width", settings.has_crop_width(), settings.crop_width(),
                            stored.width),
          .channels = stored.channels};
}

Augmentation DrawAugmentation(const config::Preprocess& settings, const Shape& stored,
                              uint64_t seed, int64_t epoch, int64_t sample) {
  const RandomStream stream(seed, RandomPurpose::kAugment, /*place=*/0,
                            static_cast<uint32_t>(epoch), static_cast<uint64_t>(sample));
  const auto first = stream.Block(0);
  const Shape crop = CropShape(settings, stored);
  const int64_t padding = settings.crop_padding();
  Augmentation drawn;
  drawn.top = Pick(first[0], stored.height + 2 * padding - crop.height + 1) - padding;
  drawn.left = Pick(first[1], stored.width + 2 * padding - crop.width + 1) - padding;
  drawn.flip = settings.flip() && (first[2] >> 31) != 0;
  if (settings.flip() && settings.alternate_flip()) {
    const RandomStream in_epoch_0(seed, RandomPurpose::kAugment, 0, 0,
                                  static_cast<uint64_t>(sample));
    drawn.flip = ((in_epoch_0.Block(0)[2] >> 31) ^ (static_cast<uint64_t>(epoch) & 1)) != 0;
  }
  drawn.brightness = settings.brightness() * (2 * ToUniform(first[3]) - 1);
  const float low = settings.contrast_min(), high = settings.contrast_max();
  drawn.contrast = low == high ? low : low + (high - low) * ToUniform(stream.Block(1)[0]);
  return drawn;
}

Augmentation CentreCrop(const config::Preprocess& settings, const Shape& stored) {
  const Shape crop = CropShape(settings, stored);
  Augmentation centre;
  centre.top = (stored.height - crop.height) / 2;
  centre.left = (stored.width - crop.width) / 2;
  return centre;
}

}  // namespace muster
