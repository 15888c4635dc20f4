#include "worker/data/preprocess.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/error.h"
#include "common/base/reflected.h"

namespace muster {
namespace {

// One channel of the input: row r, column c of the crop is pixels[(top + r) * stride + left + c]
// for r and c inside [row_begin, row_end) and [column_begin, column_end); the rest is zero padding.
struct Window {
  const uint8_t* pixels;
  int64_t stride, top, left;
  int64_t row_begin, row_end, column_begin, column_end;

  const uint8_t* Row(int64_t row) const {
    return pixels + (top + row) * stride + (left + column_begin);
  }
};

Window MakeWindow(const uint8_t* plane, const Shape& stored, const Shape& crop,
                  const Augmentation& choices) {
  const auto clamp = [](int64_t value, int64_t size) {
    return std::clamp<int64_t>(value, 0, size);
  };
  return {.pixels = plane,
          .stride = stored.width,
          .top = choices.top,
          .left = choices.left,
          .row_begin = clamp(-choices.top, crop.height),
          .row_end = clamp(stored.height - choices.top, crop.height),
          .column_begin = clamp(-choices.left, crop.width),
          .column_end = clamp(stored.width - choices.left, crop.width)};
}

// The planes of the crop, mirrored where it leaves the image.
std::vector<uint8_t> MirroredCrop(std::span<const uint8_t> planes, const Shape& stored,
                                  const Shape& crop, const Augmentation& choices) {
  std::vector<uint8_t> pixels;
  pixels.reserve(static_cast<size_t>(crop.elements()));
  for (int64_t channel = 0; channel < crop.channels; ++channel) {
    for (int64_t row = 0; row < crop.height; ++row) {
      const int64_t from = Reflected(choices.top + row, stored.height);
      const uint8_t* const line = &planes[(channel * stored.height + from) * stored.width];
      for (int64_t column = 0; column < crop.width; ++column) {
        pixels.push_back(line[Reflected(choices.left + column, stored.width)]);
      }
    }
  }
  return pixels;
}

// Mean and variance over the n values of a channel of the crop. Σx and Σx² are integers, so they
// are exact in any order, and so is n Σx² - (Σx)², up to 16 million pixels.
struct Moments {
  double mean = 0, variance = 0;
};

Moments Measure(const Window& window, int64_t n) {
  uint64_t sum = 0, squares = 0;
  const int64_t columns = window.column_end - window.column_begin;
  for (int64_t row = window.row_begin; row < window.row_end; ++row) {
    const uint8_t* pixels = window.Row(row);
    uint32_t row_sum = 0, row_squares = 0;  // wide enough for 65,536 pixels
    for (int64_t column = 0; column < columns; ++column) {
      const uint32_t pixel = pixels[column];
      row_sum += pixel;
      row_squares += pixel * pixel;
    }
    sum += row_sum;
    squares += row_squares;
  }
  const double count = static_cast<double>(n);
  const auto spread = static_cast<double>(squares * static_cast<uint64_t>(n) - sum * sum);
  return {static_cast<double>(sum) / count, spread / (count * count)};
}

// y = (x - centre) * scale + offset.
struct Affine {
  float centre, scale, offset;
};

// Writes one channel of the crop into the interleaved `image`.
void Convert(const Window& window, const Affine& map, bool flip, const Shape& crop, float* image) {
  const float padding = (0 - map.centre) * map.scale + map.offset;
  // When mirrored, column 0 of the crop becomes the last column.
  const int64_t step = flip ? -crop.channels : crop.channels;
  float* first = image + (flip ? (crop.width - 1) * crop.channels : 0);
  for (int64_t row = 0; row < crop.height; ++row, first += crop.width * crop.channels) {
    const bool outside = row < window.row_begin || row >= window.row_end;
    const int64_t begin = outside ? crop.width : window.column_begin;
    const int64_t end = outside ? crop.width : window.column_end;
    for (int64_t column = 0; column < begin; ++column) first[column * step] = padding;
    if (outside) continue;
    const uint8_t* pixels = window.Row(row);
    for (int64_t column = begin; column < end; ++column) {
      first[column * step] =
          (static_cast<float>(pixels[column - begin]) - map.centre) * map.scale + map.offset;
    }
    for (int64_t column = end; column < crop.width; ++column) first[column * step] = padding;
  }
}

}  // namespace

Preprocessor::Preprocessor(const config::Preprocess& settings, const Shape& stored)
    : settings_(settings), stored_(stored), shape_(CropShape(settings, stored)) {
  if (settings.contrast_min() > settings.contrast_max()) {
    throw Error(ExitCode::kUsage,
                "data.preprocess.contrast_min: expected at most contrast_max ({}), found {}",
                settings.contrast_max(), settings.contrast_min());
  }
}

// With the mean m_k and variance v_k of channel k, brightness d and contrast c turn x into
//   (x - m_k) c + m_k + d,
// whose mean is m_k + d and whose variance is c² v_k. So one pass over the bytes suffices for
// standardisation, and all steps after the crop are one affine map per channel.
void Preprocessor::Apply(std::span<const uint8_t> planes, const Augmentation& drawn,
                         float* image) const {
  MUSTER_CHECK(static_cast<int64_t>(planes.size()) == stored_.elements());
  Augmentation choices = drawn;
  Shape stored = stored_;
  std::vector<uint8_t> mirrored;
  if (settings_.padding() == config::Preprocess::REFLECT) {
    mirrored = MirroredCrop(planes, stored_, shape_, drawn);
    planes = mirrored;
    stored = shape_;
    choices.top = choices.left = 0;
  }
  const int64_t channels = shape_.channels;
  const int64_t plane_size = stored.height * stored.width;
  const auto window = [&](int64_t channel) {
    return MakeWindow(planes.data() + channel * plane_size, stored, shape_, choices);
  };

  std::vector<Moments> moments(static_cast<size_t>(channels));
  if (settings_.standardize() || choices.contrast != 1) {
    for (int64_t k = 0; k < channels; ++k) {
      moments[k] = Measure(window(k), shape_.height * shape_.width);
    }
  }

  double mean = 0, divisor = 255;
  if (settings_.standardize()) {
    double variance = 0;
    for (const Moments& m : moments) mean += (m.mean + choices.brightness) / channels;
    for (const Moments& m : moments) {
      const double distance = m.mean + choices.brightness - mean;
      variance +=
          (choices.contrast * choices.contrast * m.variance + distance * distance) / channels;
    }
    // A single-colour image has no variance; the lower limit keeps its noise from being amplified.
    divisor = std::max(std::sqrt(variance), 1 / std::sqrt(shape_.elements()));
  }

  const bool normalizes =
      !settings_.standardize() && settings_.mean_size() + settings_.stddev_size() > 0;
  for (int64_t k = 0; k < channels; ++k) {
    if (normalizes) {
      mean = settings_.mean_size() > 0 ? settings_.mean(static_cast<int>(k)) : 0;
      divisor = settings_.stddev_size() > 0 ? settings_.stddev(static_cast<int>(k)) : 1;
    }
    const Affine map = {
        .centre = static_cast<float>(moments[k].mean),
        .scale = static_cast<float>(choices.contrast / divisor),
        .offset = static_cast<float>((moments[k].mean + choices.brightness - mean) / divisor)};
    Convert(window(k), map, choices.flip, shape_, image + k);
  }
}

namespace {

class PlanesLoader final : public SampleLoader {
 public:
  PlanesLoader(const Dataset& dataset, const config::Preprocess& settings)
      : dataset_(dataset), preprocessor_(settings, dataset.shape()) {}

  Shape shape() const override { return preprocessor_.shape(); }
  std::unique_ptr<LoaderScratch> MakeScratch() const override {
    return std::make_unique<Scratch>();
  }
  void Train(int64_t sample, uint64_t seed, int64_t epoch, LoaderScratch& scratch,
             ImageTarget image) const override {
    Apply(sample, preprocessor_.Draw(seed, epoch, sample), scratch, std::get<float*>(image));
  }
  void Evaluate(int64_t sample, LoaderScratch& scratch, ImageTarget image) const override {
    Apply(sample, preprocessor_.Centre(), scratch, std::get<float*>(image));
  }

 private:
  struct Scratch final : LoaderScratch {
    std::vector<uint8_t> pixels;
  };
  void Apply(int64_t sample, const Augmentation& choices, LoaderScratch& scratch,
             float* image) const {
    preprocessor_.Apply(dataset_.Planes(sample, static_cast<Scratch&>(scratch).pixels), choices,
                        image);
  }

  const Dataset& dataset_;
  const Preprocessor preprocessor_;
};

}  // namespace

std::unique_ptr<SampleLoader> MakePlanesLoader(const Dataset& dataset,
                                               const config::Preprocess& settings) {
  return std::make_unique<PlanesLoader>(dataset, settings);
}

}  // namespace muster
