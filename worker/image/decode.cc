#include "worker/image/decode.h"

#include <algorithm>
#include <string_view>

#include "common/base/error.h"
#include "worker/image/file_kinds.h"

namespace muster {
namespace {

using std::literals::operator""sv;

// Recognizes other file types that are often named .jpg.
std::string_view OtherKind(std::string_view text) {
  struct Magic {
    size_t at;
    std::string_view bytes, name;
  };
  constexpr Magic kKinds[] = {{8, "WEBP", "a WebP image"},
                              {0, "GIF8", "a GIF image"},
                              {0, "BM", "a BMP image"},
                              {4, "ftyp", "HEIC, AVIF or a video"},
                              {0, "<", "text, such as HTML"}};
  for (const Magic& kind : kKinds) {
    if (text.size() > kind.at && text.substr(kind.at).starts_with(kind.bytes)) return kind.name;
  }
  return "";
}

ImageKind KindOf(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xFF\xD8\xFF"sv)) return ImageKind::kJpeg;
  if (text.starts_with("\x89PNG\r\n\x1A\n"sv)) return ImageKind::kPng;
  if (text.empty())
    throw Error(ExitCode::kData, "expected a JPEG or PNG file, found an empty file");
  const std::string_view other = OtherKind(text);
  if (!other.empty()) {
    throw Error(ExitCode::kData, "expected a JPEG or PNG file, found {}: convert it", other);
  }
  std::string found;
  for (const char c : text.substr(0, 8)) {
    found += fmt::format("{}{:02X}", found.empty() ? "" : " ", static_cast<uint8_t>(c));
  }
  throw Error(ExitCode::kData, "expected a JPEG or PNG file, found a file that begins with {}",
              found);
}

struct Range {
  int64_t begin = 0, end = 0;
};

// One direction of the stored image: which of its pixels are decoded, after reduction, and where
// they lie in the image as shown.
struct StoredRange {
  StoredRange(Range shown, bool mirrored, int64_t stored, int64_t reduction) {
    if (mirrored) shown = {stored - shown.end, stored - shown.begin};
    begin = shown.begin / reduction;
    size = (shown.end + reduction - 1) / reduction - begin;
    shown_at = mirrored ? stored - (begin + size) * reduction : begin * reduction;
  }

  int64_t begin, size, shown_at;
};

// Orientation as three steps on the stored image: mirror its rows, mirror its columns, transpose.
struct Turn {
  explicit Turn(int orientation)
      : down(orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7),
        right(orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8),
        transposed(orientation >= 5) {}

  // `stored` is height x width; `shown` is the same or width x height.
  void Apply(const uint8_t* stored, int64_t height, int64_t width, int64_t channels,
             uint8_t* shown) const {
    int64_t next_row = width * channels, next_column = channels;
    const uint8_t* first = stored;
    if (down) first += (height - 1) * next_row, next_row = -next_row;
    if (right) first += (width - 1) * next_column, next_column = -next_column;
    if (transposed) std::swap(next_row, next_column), std::swap(height, width);
    for (int64_t row = 0; row < height; ++row, first += next_row) {
      const uint8_t* pixel = first;
      for (int64_t column = 0; column < width; ++column, pixel += next_column) {
        shown = std::copy_n(pixel, channels, shown);
      }
    }
  }

  bool down, right, transposed;
};

}  // namespace

ImageInfo ReadImageInfo(std::span<const uint8_t> bytes) {
  const ImageHeader header =
      KindOf(bytes) == ImageKind::kJpeg ? ReadJpegHeader(bytes) : ReadPngHeader(bytes);
  const ImageSize& size = header.info.stored;
  if (std::max(size.height, size.width) > kMaxImageSide) {
    throw Error(ExitCode::kData, "the image has {} x {} pixels: expected at most {} on each side",
                size.width, size.height, kMaxImageSide);
  }
  if (size.height > kMaxImagePixels / size.width) {
    throw Error(ExitCode::kData, "the image has {} x {} pixels: expected at most {} in total",
                size.width, size.height, kMaxImagePixels);
  }
  const auto found = static_cast<int64_t>(bytes.size());
  if (found < header.least_bytes) {
    throw Error(ExitCode::kData,
                "the file is truncated: {} x {} pixels take at least {} bytes, found {}",
                size.width, size.height, header.least_bytes, found);
  }
  return header.info;
}

DecodeWarnings Decode(std::span<const uint8_t> bytes, const ImageInfo& info,
                      const DecodeRequest& request, DecodeScratch& scratch, Image& image) {
  const ImageBox& region = request.region;
  const ImageSize shown = info.shown();
  MUSTER_CHECK(region.top >= 0 && region.height > 0 && region.top + region.height <= shown.height);
  MUSTER_CHECK(region.left >= 0 && region.width > 0 && region.left + region.width <= shown.width);
  MUSTER_CHECK(request.channels == 1 || request.channels == 3);
  const bool jpeg = info.kind == ImageKind::kJpeg;
  const int64_t reduction = jpeg ? request.reduction : 1;
  MUSTER_CHECK(reduction == 1 || reduction == 2 || reduction == 4 || reduction == 8);

  const Turn turn(info.orientation);
  Range rows{region.top, region.top + region.height};
  Range columns{region.left, region.left + region.width};
  if (turn.transposed) std::swap(rows, columns);
  StoredRange down(rows, turn.down, info.stored.height, reduction);
  StoredRange right(columns, turn.right, info.stored.width, reduction);
  const ImageBox box{down.begin, right.begin, down.size, right.size};

  image.channels = request.channels;
  image.reduction = reduction;
  image.pixels.resize(static_cast<size_t>(box.height * box.width * request.channels));
  const bool turned = info.orientation != 1;
  if (turned) scratch.stored.resize(image.pixels.size());
  uint8_t* pixels = turned ? scratch.stored.data() : image.pixels.data();
  DecodeWarnings warnings;
  if (jpeg) {
    warnings = ReadJpeg(bytes, reduction, box, request.channels, scratch, pixels);
  } else {
    ReadPng(bytes, box, request.channels, scratch, pixels);
  }
  if (turned) turn.Apply(pixels, box.height, box.width, request.channels, image.pixels.data());
  if (turn.transposed) std::swap(down, right);
  image.height = down.size;
  image.width = right.size;
  image.top = down.shown_at;
  image.left = right.shown_at;
  return warnings;
}

}  // namespace muster
