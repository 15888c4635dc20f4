#include "cli/data/show_command.h"

#include <fmt/core.h>
#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "cli/data/normalization.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/view/chart.h"
#include "common/base/atomic_file.h"
#include "common/base/encode_png.h"
#include "common/base/error.h"
#include "common/config/data_format.h"
#include "proto/config.pb.h"
#include "worker/data/pipeline.h"

namespace muster {
namespace {

constexpr int64_t kSheetEpochs = 5;
// Sizes in the picture, in pixels.
constexpr double kGap = 8, kTitleLine = 22, kTextLine = 16;
constexpr double kSmallest = 112, kLargest = 256;  // limits of an image's longer side

using Values = std::vector<float>;

// A sample without height and width is shown as a row of gray pixels.
Shape ShownShape(const Shape& shape) {
  return shape.height == 1 && shape.width == 1 ? Shape{1, shape.channels, 1} : shape;
}

// Reverts data.preprocess.mean and stddev. Pixels are then from 0 to 1.
void Denormalize(const config::Data& data, int64_t channels, Values& values) {
  const config::Preprocess& settings = data.preprocess();
  if (settings.standardize() || settings.mean_size() + settings.stddev_size() == 0) return;
  const bool are_bytes =
      data.format() != config::Data::IMAGE_FOLDER &&
      (data.format() != config::Data::NPZ || data.npz().type() == config::NpzData::UINT8);
  for (size_t i = 0; i < values.size(); ++i) {
    const int channel = static_cast<int>(static_cast<int64_t>(i) % channels);
    if (settings.stddev_size() > 0) values[i] *= static_cast<float>(settings.stddev(channel));
    if (settings.mean_size() > 0) values[i] += static_cast<float>(settings.mean(channel));
    if (are_bytes) values[i] /= 255;
  }
}

// The values that are drawn as black and as white.
struct Tones {
  float black = 0, white = 1;
};

// Chooses the tones of a row: the images of one sample, the one for evaluation first. Normally,
// pixels are from 0 to 1. If they are not (standardized images, or numbers of another unit), the
// range of the whole row is used.
Tones TonesOf(const std::vector<Values>& row) {
  constexpr float kRounding = 1e-3f;
  const auto [least, most] = std::ranges::minmax(row.front());
  Tones tones;
  if (least >= -kRounding && most <= 1 + kRounding) return tones;
  tones = {least, most};
  for (const Values& image : row) {
    const auto [low, high] = std::ranges::minmax(image);
    tones = {std::min(tones.black, low), std::max(tones.white, high)};
  }
  if (tones.white == tones.black) ++tones.white;
  return tones;
}

// Shows the first three channels as red, green and blue, or, if there are fewer, the first one as
// gray.
std::string PngOf(const Values& image, const Shape& shape, const Tones& tones) {
  const auto channels = static_cast<size_t>(shape.channels);
  std::string pixels;
  pixels.reserve(static_cast<size_t>(3 * shape.height * shape.width));
  for (size_t at = 0; at < image.size(); at += channels) {
    for (size_t color = 0; color < 3; ++color) {
      const float value = image[at + (channels >= 3 ? color : 0)];
      const float tone = (value - tones.black) / (tones.white - tones.black);
      pixels += static_cast<char>(std::lround(std::clamp(tone, 0.0f, 1.0f) * 255));
    }
  }
  return EncodePng(static_cast<uint32_t>(shape.height), static_cast<uint32_t>(shape.width), pixels);
}

// Enlarges small images by a whole factor and shrinks large ones. A row of numbers gets the height
// of a line of text.
Point PictureSize(const Shape& shape) {
  const auto longer = static_cast<double>(std::max(shape.height, shape.width));
  const double factor =
      longer < kSmallest ? std::floor(kSmallest / longer) : std::min(1.0, kLargest / longer);
  return {std::max(kTextLine, factor * static_cast<double>(shape.width)),
          std::max(kTextLine, factor * static_cast<double>(shape.height))};
}

// Averages squares of pixels, so that no side is longer than kSmallest. Rows of pixels stay as they
// are.
void Shrink(Values& image, Shape& shape) {
  const auto most = static_cast<int64_t>(kSmallest);
  const int64_t factor = (std::max(shape.height, shape.width) + most - 1) / most;
  if (factor == 1 || std::min(shape.height, shape.width) < factor) return;
  const Shape small{shape.height / factor, shape.width / factor, shape.channels};
  Values sums(static_cast<size_t>(small.elements()));
  for (int64_t y = 0; y < small.height * factor; ++y) {
    for (int64_t x = 0; x < small.width * factor; ++x) {
      for (int64_t c = 0; c < shape.channels; ++c) {
        const int64_t to = (y / factor * small.width + x / factor) * shape.channels + c;
        sums[static_cast<size_t>(to)] +=
            image[static_cast<size_t>((y * shape.width + x) * shape.channels + c)];
      }
    }
  }
  for (float& sum : sums) sum /= static_cast<float>(factor * factor);
  image = std::move(sums);
  shape = small;
}

std::string LabelText(const Dataset& set, int64_t sample, const config::Data& data) {
  const int32_t label = set.Label(sample);
  if (HasValues(data)) return fmt::format("{:g}", std::bit_cast<float>(label));
  const std::string name =
      label < data.class_names_size() ? data.class_names(label) : std::to_string(label);
  return fmt::format("{} (sample {})", name, FormatCount(sample));
}

}  // namespace

std::string DataUrl(const std::string& type, const std::string& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // with room for a terminating zero
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return "data:" + type + ";base64," + text;
}

std::string ContactSheet(const Dataset& set, const config::Config& config, int64_t samples,
                         int64_t epoch) {
  const uint64_t seed = config.run().seed();
  const std::unique_ptr<SampleLoader> loader = set.MakeLoader(config.data());
  const std::unique_ptr<LoaderScratch> scratch = loader->MakeScratch();
  const Shape loaded = loader->shape(), shape = ShownShape(loaded);
  const Point size = PictureSize(shape);
  const Point step{size.x + kGap, kTextLine + size.y + kGap};
  std::vector<int64_t> order = EpochOrder(set.size(), seed, epoch);
  order.resize(static_cast<size_t>(std::min(samples, set.size())));

  Svg svg({kGap + step.x * (1 + kSheetEpochs),
           kTitleLine + kGap + step.y * static_cast<double>(order.size())});
  for (int64_t column = 0; column <= kSheetEpochs; ++column) {
    const double x = kGap + step.x * static_cast<double>(column);
    svg.AddText({x, kTitleLine - 4},
                column == 0 ? "evaluation" : fmt::format("epoch {}", epoch + column - 1), {});
  }
  double y = kTitleLine;
  for (const int64_t sample : order) {
    std::vector<Values> row(1 + kSheetEpochs, Values(static_cast<size_t>(loaded.elements())));
    loader->Evaluate(sample, *scratch, row[0].data());
    for (int64_t i = 0; i < kSheetEpochs; ++i) {
      loader->Train(sample, seed, epoch + i, *scratch, row[static_cast<size_t>(1 + i)].data());
    }
    for (Values& image : row) Denormalize(config.data(), loaded.channels, image);
    const Tones tones = TonesOf(row);
    svg.AddText({kGap, y + kTextLine - 4}, LabelText(set, sample, config.data()), {});
    double x = kGap;
    for (const Values& image : row) {
      svg.AddImage({x, y + kTextLine}, size, DataUrl("image/png", PngOf(image, shape, tones)));
      x += step.x;
    }
    y += step.y;
  }
  return svg.Finish();
}

std::vector<Thumbnail> Thumbnails(const config::Config& config, bool validation_set,
                                  const std::vector<int64_t>& samples) {
  const auto open = validation_set ? OpenDatasets : OpenEvaluatedSet;
  const Datasets sets = open(config.data(), config.run().seed());
  const Dataset& set = validation_set ? *sets.validation : EvaluatedSetOf(sets);
  const std::unique_ptr<SampleLoader> loader = set.MakeLoader(config.data());
  const std::unique_ptr<LoaderScratch> scratch = loader->MakeScratch();
  std::vector<Thumbnail> thumbnails;
  thumbnails.reserve(samples.size());
  for (const int64_t sample : samples) {
    Shape shape = ShownShape(loader->shape());
    Values image(static_cast<size_t>(shape.elements()));
    loader->Evaluate(sample, *scratch, image.data());
    Denormalize(config.data(), shape.channels, image);
    Shrink(image, shape);
    thumbnails.push_back(
        {DataUrl("image/png", PngOf(image, shape, TonesOf({image}))), set.FileOf(sample)});
  }
  return thumbnails;
}

int RunShow(const ShowArguments& arguments) {
  if (!arguments.output.ends_with(".svg")) {
    throw Error(ExitCode::kUsage,
                "--output {}: the picture is SVG: expected a name that ends in .svg",
                arguments.output);
  }
  config::Config config = LoadConfig(arguments.config_path, arguments.settings);
  RequireReplaceable("--output", arguments.output, kSvgBeginning);
  (void)AtomicFile(arguments.output);  // fails early if the file cannot be written
  PrintResult(MeasureNormalization(config));
  const Datasets sets = OpenDatasets(config.data(), config.run().seed());
  WriteFileAtomically(arguments.output,
                      ContactSheet(*sets.train, config, arguments.samples, arguments.epoch));
  PrintResult(
      fmt::format("wrote {}: {} of epochs {} to {}", arguments.output,
                  Plural(std::min(arguments.samples, sets.train->size()), "training sample"),
                  arguments.epoch, arguments.epoch + kSheetEpochs - 1));
  return 0;
}

}  // namespace muster
