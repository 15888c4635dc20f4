#include "worker/data/photo_loader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "common/base/running_hash.h"
#include "common/base/text.h"
#include "common/config/data_format.h"
#include "worker/image/decode.h"
#include "worker/image/resize.h"

namespace muster {
namespace {

// An 8 x 8 color image with chroma at half the resolution, which decoders decode differently.
constexpr uint8_t kProbe[] = {
    0xff, 0xd8, 0xff, 0xe0, 0x00, 0x10, 0x4a, 0x46, 0x49, 0x46, 0x00, 0x01, 0x01, 0x00, 0x00, 0x01,
    0x00, 0x01, 0x00, 0x00, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x08, 0x06, 0x06, 0x07, 0x06, 0x05, 0x08,
    0x07, 0x07, 0x07, 0x09, 0x09, 0x08, 0x0a, 0x0c, 0x14, 0x0d, 0x0c, 0x0b, 0x0b, 0x0c, 0x19, 0x12,
    0x13, 0x0f, 0x14, 0x1d, 0x1a, 0x1f, 0x1e, 0x1d, 0x1a, 0x1c, 0x1c, 0x20, 0x24, 0x2e, 0x27, 0x20,
    0x22, 0x2c, 0x23, 0x1c, 0x1c, 0x28, 0x37, 0x29, 0x2c, 0x30, 0x31, 0x34, 0x34, 0x34, 0x1f, 0x27,
    0x39, 0x3d, 0x38, 0x32, 0x3c, 0x2e, 0x33, 0x34, 0x32, 0xff, 0xdb, 0x00, 0x43, 0x01, 0x09, 0x09,
    0x09, 0x0c, 0x0b, 0x0c, 0x18, 0x0d, 0x0d, 0x18, 0x32, 0x21, 0x1c, 0x21, 0x32, 0x32, 0x32, 0x32,
    0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32,
    0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32,
    0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0x32, 0xff, 0xc0,
    0x00, 0x11, 0x08, 0x00, 0x08, 0x00, 0x08, 0x03, 0x01, 0x22, 0x00, 0x02, 0x11, 0x01, 0x03, 0x11,
    0x01, 0xff, 0xc4, 0x00, 0x15, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xff, 0xc4, 0x00, 0x1e, 0x10, 0x00, 0x02, 0x02,
    0x02, 0x02, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02, 0x03,
    0x11, 0x00, 0x04, 0x05, 0x21, 0x12, 0x13, 0x52, 0xff, 0xc4, 0x00, 0x15, 0x01, 0x01, 0x01, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x04, 0xff,
    0xc4, 0x00, 0x1e, 0x11, 0x01, 0x00, 0x01, 0x04, 0x02, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x01, 0x03, 0x00, 0x02, 0x21, 0x41, 0x04, 0x31, 0x12, 0xc1, 0xf0, 0xff,
    0xda, 0x00, 0x0c, 0x03, 0x01, 0x00, 0x02, 0x11, 0x03, 0x11, 0x00, 0x3f, 0x00, 0xad, 0xc6, 0x4e,
    0x34, 0xe5, 0x84, 0xb4, 0x8b, 0x34, 0x31, 0xb2, 0x12, 0xde, 0xc6, 0x3b, 0x65, 0x99, 0x50, 0xb5,
    0xdf, 0x55, 0xd0, 0xf9, 0xbf, 0x1b, 0x34, 0x43, 0x63, 0x18, 0xca, 0x2d, 0xe7, 0x4d, 0xc7, 0x3c,
    0x63, 0x43, 0x2e, 0x8d, 0x60, 0xfb, 0xd5, 0x34, 0x37, 0x31, 0xa8, 0x67, 0xae, 0xc1, 0xd5, 0x7f,
    0xff, 0xd9};

CropSettings CropOf(const config::Preprocess& settings) {
  return {.sample = {settings.crop_height(), settings.crop_width()},
          .shorter_side = ShorterSide(settings),
          .margin = settings.crop_padding(),
          .padding = settings.padding() == config::Preprocess::REFLECT ? ImagePadding::kReflect
                                                                       : ImagePadding::kZero};
}

Normalizer NormalizerOf(const config::Preprocess& settings, int64_t channels) {
  std::vector<double> mean(settings.mean().begin(), settings.mean().end());
  std::vector<double> stddev(settings.stddev().begin(), settings.stddev().end());
  mean.resize(static_cast<size_t>(channels), 0);
  stddev.resize(static_cast<size_t>(channels), 1);
  return {mean, stddev};
}

}  // namespace

void ReadPhotoFile(const std::string& path, std::vector<uint8_t>& bytes, size_t most) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;  // larger than any accepted image
  const UniqueFd fd = OpenPlainFile(path);
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) {
    throw Error(errno == ENOENT ? ExitCode::kData : ExitCode::kFailure, "{}: cannot be read: {}",
                path, ErrorText(errno));
  }
  if (status.st_size > kMostBytes) {
    throw Error(ExitCode::kData, "{}: expected an image of at most {} bytes, found {}", path,
                kMostBytes, status.st_size);
  }
  bytes.resize(std::min(static_cast<size_t>(status.st_size), most));
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::read(fd.get(), bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw Error(ExitCode::kFailure, "{}: cannot be read: {}", path,
                  count == 0 ? "the file became shorter while it was read" : ErrorText(errno));
    }
    at += static_cast<size_t>(count);
  }
}

struct PhotoLoader::Scratch final : LoaderScratch {
  std::vector<uint8_t> file, pixels;
  DecodeScratch decode;
  ResizeScratch resize;
  Image image;
};

PhotoLoader::PhotoLoader(const PhotoFiles& files, const config::Data& data)
    : files_(files),
      data_dir_(data.dir()),
      settings_(data.preprocess()),
      shape_(StoredShape(data)),
      crop_(CropOf(settings_)),
      jitter_{settings_.jitter_brightness(), settings_.jitter_contrast(),
              settings_.jitter_saturation()},
      normalizer_(NormalizerOf(settings_, shape_.channels)) {}

std::unique_ptr<LoaderScratch> PhotoLoader::MakeScratch() const {
  return std::make_unique<Scratch>();
}

SampleGeometry PhotoLoader::DrawGeometry(ImageSize photo, const RandomStream& stream) const {
  if (settings_.training_crop() != config::Preprocess::RESIZED) {
    return DrawPaddedCrop(crop_, photo, stream);
  }
  return DrawResizedCrop(
      {settings_.scale_min(), settings_.scale_max(), settings_.ratio_min(), settings_.ratio_max()},
      crop_.sample, photo, stream);
}

template <typename Choose>
void PhotoLoader::MakePixels(int64_t sample, const Choose& choose, Scratch& scratch) const {
  MUSTER_CHECK(0 <= sample && sample < static_cast<int64_t>(files_.photos.size()));
  const Photo& photo = files_.photos[static_cast<size_t>(sample)];
  const std::string path = std::filesystem::path(files_.folder) / photo.path;
  try {
    ReadPhotoFile(path, scratch.file);
    const auto found = std::ssize(scratch.file);
    if (files_.troubles == nullptr && found != photo.bytes) {
      throw Error(ExitCode::kData,
                  "{}: the size changed after the files were listed: expected {} bytes, found {}",
                  path, photo.bytes, found);
    }
    DecodeSample(path, choose, scratch);
  } catch (const Error& error) {
    if (files_.troubles == nullptr) throw;
    (*files_.troubles)[static_cast<size_t>(sample)] = error.what();
    scratch.pixels.assign(static_cast<size_t>(shape_.elements()), 0);
  }
}

template <typename Choose>
void PhotoLoader::DecodeSample(const std::string& path, const Choose& choose,
                               Scratch& scratch) const {
  try {
    const ImageInfo info = ReadImageInfo(scratch.file);
    const auto [geometry, may_scale] = choose(info.shown());
    const DecodeRequest request{.channels = shape_.channels,
                                .region = NeededRegion(geometry, ResizeFilter::kBilinear),
                                .reduction = may_scale ? LargestReduction(geometry) : 1};
    (void)Decode(scratch.file, info, request, scratch.decode, scratch.image);
    scratch.pixels.resize(static_cast<size_t>(shape_.elements()));
    Resize(scratch.image, geometry, ResizeFilter::kBilinear, scratch.resize, scratch.pixels.data());
  } catch (const Error& error) {
    const std::string advice =
        files_.troubles != nullptr
            ? ""
            : fmt::format(". `muster data check {}` lists all such files", ShellWord(data_dir_));
    throw Error(error.code(), "{}: {}{}", path, error.what(), advice);
  }
}

void PhotoLoader::Write(const std::vector<uint8_t>& pixels, ImageTarget image) const {
  if (float* const* const floats = std::get_if<float*>(&image)) {
    normalizer_.Apply(pixels.data(), std::ssize(pixels), *floats);
  } else {
    std::ranges::copy(pixels, std::get<uint8_t*>(image));
  }
}

void PhotoLoader::Train(int64_t sample, uint64_t seed, int64_t epoch, LoaderScratch& memory,
                        ImageTarget image) const {
  auto& scratch = static_cast<Scratch&>(memory);
  const RandomStream stream = ImageStream(seed, epoch, sample);
  MakePixels(
      sample,
      [&](ImageSize photo) {
        SampleGeometry geometry = DrawGeometry(photo, stream);
        geometry.flip = settings_.flip() && DrawFlip(stream);
        return std::pair(geometry, settings_.scaled_decoding());
      },
      scratch);
  ApplyColor(DrawColor(jitter_, stream), crop_.sample, shape_.channels, scratch.pixels.data());
  Write(scratch.pixels, image);
  if (settings_.erasing_probability() == 0) return;
  const ImageBox erased =
      DrawErasing(kErasingBox, settings_.erasing_probability(), crop_.sample, stream);
  Erase(erased, crop_.sample, shape_.channels, std::get<float*>(image));
}

void PhotoLoader::Evaluate(int64_t sample, LoaderScratch& memory, ImageTarget image) const {
  auto& scratch = static_cast<Scratch&>(memory);
  MakePixels(
      sample, [&](ImageSize photo) { return std::pair(CentreSample(crop_, photo), false); },
      scratch);
  Write(scratch.pixels, image);
}

std::span<const uint8_t> PhotoLoader::Planes(int64_t sample, std::vector<uint8_t>& buffer) const {
  Scratch scratch;
  MakePixels(
      sample, [&](ImageSize photo) { return std::pair(CentreSample(crop_, photo), false); },
      scratch);
  const int64_t count = shape_.height * shape_.width;
  buffer.resize(scratch.pixels.size());
  for (int64_t channel = 0; channel < shape_.channels; ++channel) {
    for (int64_t i = 0; i < count; ++i) {
      buffer[static_cast<size_t>(channel * count + i)] =
          scratch.pixels[static_cast<size_t>(i * shape_.channels + channel)];
    }
  }
  return buffer;
}

uint64_t DecoderFingerprint() {
  const std::span<const uint8_t> probe(kProbe);
  const ImageInfo info = ReadImageInfo(probe);
  DecodeScratch scratch;
  Image image;
  (void)Decode(probe, info, {.region = {.height = info.stored.height, .width = info.stored.width}},
               scratch, image);
  RunningHash hash;
  hash.Add(std::as_bytes(std::span(image.pixels)));
  return hash.value();
}

}  // namespace muster
