#include "ps/tensorboard/sample_image.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/encode_png.h"

namespace muster {
namespace {

// A small image, enlarged in RGB with a frame: green if the prediction is right, red if it is
// wrong.
struct Stamp {
  uint32_t height, width;
  std::string pixels;  // RGB
};

Stamp StampOf(const SampleImage& image) {
  constexpr uint32_t kAbout = 128, kFrame = 4;
  const uint32_t factor = std::max(1U, kAbout / std::max(image.height, image.width));
  Stamp stamp{image.height * factor + 2 * kFrame, image.width * factor + 2 * kFrame, ""};
  const std::string frame = image.label == image.predicted ? std::string("\x00\xa0\x40", 3)
                                                           : std::string("\xd0\x10\x10", 3);
  const auto inside = [](uint32_t at, uint32_t size) { return at - kFrame < size - 2 * kFrame; };
  for (uint32_t y = 0; y < stamp.height; ++y) {
    for (uint32_t x = 0; x < stamp.width; ++x) {
      if (!inside(y, stamp.height) || !inside(x, stamp.width)) {
        stamp.pixels += frame;
        continue;
      }
      const size_t row = (y - kFrame) / factor, column = (x - kFrame) / factor;
      const size_t at = (row * image.width + column) * image.channels;
      for (uint32_t channel = 0; channel < 3; ++channel) {
        stamp.pixels += image.pixels[at + (image.channels == 3 ? channel : 0)];
      }
    }
  }
  return stamp;
}

std::string NameOf(uint32_t label, const ClassNames& names) {
  const bool known = label < static_cast<uint32_t>(names.size());
  return known ? names[static_cast<int>(label)] : std::to_string(label);
}

// A "/" in a tag starts a group.
std::string InTag(std::string name) {
  std::ranges::replace(name, '/', '-');
  return name;
}

}  // namespace

void AddImage(tensorboard::Summary& summary, const std::string& set, const SampleImage& image,
              const ClassNames& names) {
  // These limits also prevent an overflow, and bound the work for a peer's numbers.
  constexpr uint32_t kMostSide = 4096;
  const bool known = (image.channels == 1 || image.channels == 3) && image.height <= kMostSide &&
                     image.width <= kMostSide;
  const size_t bytes = size_t{image.height} * image.width * image.channels;
  if (!known || bytes == 0 || image.pixels.size() != bytes) return;
  const Stamp stamp = StampOf(image);
  tensorboard::Summary::Value& value = *summary.add_value();
  value.set_tag(
      fmt::format("{}_images/{}_{}", set, image.index, InTag(NameOf(image.label, names))));
  tensorboard::Summary::Image& picture = *value.mutable_image();
  picture.set_height(static_cast<int32_t>(stamp.height));
  picture.set_width(static_cast<int32_t>(stamp.width));
  picture.set_colorspace(3);
  picture.set_encoded_image_string(EncodePng(stamp.height, stamp.width, stamp.pixels));
}

std::string PredictionTable(const std::vector<SampleImage>& images, const ClassNames& names) {
  std::string table = "| image | label | predicted | |\n|---|---|---|---|\n";
  for (const SampleImage& image : images) {
    table +=
        fmt::format("| {} | {} | {} | {} |\n", image.index, NameOf(image.label, names),
                    NameOf(image.predicted, names), image.label == image.predicted ? "" : "wrong");
  }
  return table;
}

}  // namespace muster
