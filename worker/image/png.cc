#include <spng.h>

#include <memory>
#include <string_view>

#include "common/base/error.h"
#include "worker/image/exif.h"
#include "worker/image/file_kinds.h"

namespace muster {
namespace {

// The maximum compression ratio of deflate.
constexpr int64_t kMaxInflation = 1032;
// Limits text chunks and profiles, which are not used.
constexpr size_t kMaxChunkBytes = 16 << 20;

void Check(int code) {
  if (code == SPNG_OK) return;
  throw Error(ExitCode::kData, "this PNG cannot be decoded: {}", spng_strerror(code));
}

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

struct PngFile {
  explicit PngFile(std::span<const uint8_t> bytes) : context(spng_ctx_new(0)) {
    if (context == nullptr) throw std::bad_alloc();
    Check(spng_set_chunk_limits(context.get(), kMaxChunkBytes, kMaxChunkBytes));
    Check(spng_set_png_buffer(context.get(), bytes.data(), bytes.size()));
    Check(spng_get_ihdr(context.get(), &header));
  }

  std::unique_ptr<spng_ctx, FreeContext> context;
  spng_ihdr header{};
};

int64_t SamplesPerPixel(uint8_t color_type) {
  switch (color_type) {
    case SPNG_COLOR_TYPE_TRUECOLOR:
      return 3;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
      return 2;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
      return 4;
    default:
      return 1;
  }
}

// Reads the chunks by itself, because libspng reads those after the pixels only with the pixels.
// As in Pillow, their checksums do not matter.
int OrientationIn(std::span<const uint8_t> bytes) {
  constexpr size_t kSignature = 8, kFrame = 12;  // of a chunk: length, type, checksum
  constexpr std::string_view kXmp("XML:com.adobe.xmp\0\0\0", 20);  // not compressed
  std::span<const uint8_t> exif;
  std::string_view xmp;
  for (size_t at = kSignature; at + kFrame <= bytes.size();) {
    const uint8_t* const chunk = &bytes[at];
    const size_t length =
        uint32_t{chunk[0]} << 24 | uint32_t{chunk[1]} << 16 | uint32_t{chunk[2]} << 8 | chunk[3];
    if (length > bytes.size() - at - kFrame) break;
    const std::string_view type(reinterpret_cast<const char*>(chunk) + 4, 4);
    if (type == "IEND") break;
    const std::string_view text(type.data() + type.size(), length);
    if (type == "eXIf") exif = {chunk + 8, length};
    if (type == "iTXt" && text.starts_with(kXmp)) xmp = text.substr(kXmp.size());
    at += kFrame + length;
  }
  return Orientation(exif, xmp);
}

}  // namespace

ImageHeader ReadPngHeader(std::span<const uint8_t> bytes) {
  const PngFile file(bytes);
  const int64_t height = file.header.height, width = file.header.width;
  const int64_t bits = SamplesPerPixel(file.header.color_type) * file.header.bit_depth;
  // Computed in double because the sizes are not checked yet.
  const double inflated = static_cast<double>(height) * (static_cast<double>(width) * bits / 8 + 1);
  return {.info = {.kind = ImageKind::kPng,
                   .stored = {height, width},
                   .orientation = OrientationIn(bytes)},
          .least_bytes = static_cast<int64_t>(inflated / kMaxInflation)};
}

void ReadPng(std::span<const uint8_t> bytes, const ImageBox& box, int64_t channels,
             DecodeScratch& scratch, uint8_t* pixels) {
  const PngFile file(bytes);
  spng_ctx* context = file.context.get();
  // libspng converts only grey of at most 8 bits to 8-bit grey, but everything to RGB.
  const bool grey = channels == 1 && file.header.color_type == SPNG_COLOR_TYPE_GRAYSCALE &&
                    file.header.bit_depth <= 8;
  const int format = grey ? SPNG_FMT_G8 : SPNG_FMT_RGB8;
  const int64_t samples = grey ? 1 : 3;
  const size_t row_bytes = static_cast<size_t>(file.header.width * samples);
  const auto store = [&](const uint8_t* row, int64_t at) {
    const uint8_t* part = row + box.left * samples;
    uint8_t* out = pixels + at * box.width * channels;
    if (grey) {
      std::copy_n(part, box.width, out);
    } else {
      StoreRgb(part, box.width, channels, out);
    }
  };

  if (file.header.interlace_method != SPNG_INTERLACE_NONE) {
    scratch.whole.resize(row_bytes * file.header.height);
    Check(spng_decode_image(context, scratch.whole.data(), scratch.whole.size(), format, 0));
    for (int64_t at = 0; at < box.height; ++at) {
      store(scratch.whole.data() + (box.top + at) * row_bytes, at);
    }
    return;
  }
  scratch.row.resize(row_bytes);
  Check(spng_decode_image(context, nullptr, 0, format, SPNG_DECODE_PROGRESSIVE));
  for (int64_t row = 0; row < box.top + box.height; ++row) {
    const int code = spng_decode_row(context, scratch.row.data(), row_bytes);
    if (code != SPNG_EOI) Check(code);  // the last row returns "end of image"
    if (row >= box.top) store(scratch.row.data(), row - box.top);
  }
}

}  // namespace muster
