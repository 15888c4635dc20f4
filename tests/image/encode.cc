#include "tests/image/encode.h"

#include <zlib.h>

#include <cmath>
#include <cstdlib>

#include "common/base/random.h"

namespace muster::testing {
namespace {

void PutLong(Bytes& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes.push_back(static_cast<uint8_t>(value >> shift));
}

void PutChunk(Bytes& file, const std::string& type, const Bytes& contents) {
  PutLong(file, static_cast<uint32_t>(contents.size()));
  Bytes checked(type.begin(), type.end());
  checked.insert(checked.end(), contents.begin(), contents.end());
  file.insert(file.end(), checked.begin(), checked.end());
  PutLong(file, static_cast<uint32_t>(crc32(0, checked.data(), static_cast<uInt>(checked.size()))));
}

// Writes one pass of an interlaced image, or a whole image, with a filter byte (none) before each
// row.
void PutPass(const PngSpec& spec, uint32_t top, uint32_t left, uint32_t down, uint32_t across,
             Bytes& raw) {
  const uint32_t samples = static_cast<uint32_t>(SamplesOf(spec.color_type));
  if (left >= spec.width) return;
  for (uint32_t y = top; y < spec.height; y += down) {
    raw.push_back(0);
    uint32_t held = 0;
    int bits = 0;
    const auto put = [&](uint32_t value) {
      held = held << spec.bits | value;
      for (bits += spec.bits; bits >= 8; bits -= 8) {
        raw.push_back(static_cast<uint8_t>(held >> (bits - 8)));
      }
    };
    for (uint32_t x = left; x < spec.width; x += across) {
      for (uint32_t k = 0; k < samples; ++k) {
        put(spec.samples[(size_t{y} * spec.width + x) * samples + k]);
      }
    }
    if (bits > 0) raw.push_back(static_cast<uint8_t>(held << (8 - bits)));
  }
}

}  // namespace

Bytes EncodeJpeg(const JpegSpec& spec) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = static_cast<JDIMENSION>(spec.height);
  info.image_width = static_cast<JDIMENSION>(spec.width);
  info.in_color_space = spec.in;
  info.input_components = spec.in == JCS_GRAYSCALE ? 1 : spec.in == JCS_CMYK ? 4 : 3;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, spec.stored);
  jpeg_set_quality(&info, spec.quality, TRUE);
  info.comp_info[0].h_samp_factor = spec.across;
  info.comp_info[0].v_samp_factor = spec.down;
  if (info.num_components == 4) {  // black has the resolution of the first component
    info.comp_info[3].h_samp_factor = spec.across;
    info.comp_info[3].v_samp_factor = spec.down;
  }
  info.restart_in_rows = spec.restart_rows;
  if (!spec.adobe) info.write_Adobe_marker = FALSE;
  if (spec.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  if (!spec.app1.empty()) {
    jpeg_write_marker(&info, JPEG_APP0 + 1, spec.app1.data(),
                      static_cast<unsigned>(spec.app1.size()));
  }
  const size_t row_bytes = size_t{info.image_width} * info.input_components;
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(spec.pixels.data() + info.next_scanline * row_bytes);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  Bytes file(memory, memory + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return file;
}

Bytes Exif(int orientation, bool big_endian) {
  Bytes bytes{'E', 'x', 'i', 'f', 0, 0};
  const auto put = [&](uint32_t value, int count) {
    for (int i = 0; i < count; ++i) {
      const int shift = 8 * (big_endian ? count - 1 - i : i);
      bytes.push_back(static_cast<uint8_t>(value >> shift));
    }
  };
  for (int i = 0; i < 2; ++i) bytes.push_back(big_endian ? 'M' : 'I');
  put(42, 2);
  put(8, 4);  // the offset of the directory
  put(2, 2);  // entries: tag, type, count, value
  put(0x106, 2), put(3, 2), put(1, 4), put(2, 2), put(0, 2);
  put(0x112, 2), put(3, 2), put(1, 4), put(static_cast<uint32_t>(orientation), 2), put(0, 2);
  put(0, 4);
  return bytes;
}

int SamplesOf(int color_type) {
  return color_type == 2 ? 3 : color_type == 4 ? 2 : color_type == 6 ? 4 : 1;
}

Bytes EncodePng(const PngSpec& spec) {
  Bytes file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  Bytes header;
  PutLong(header, spec.width);
  PutLong(header, spec.claimed_height != 0 ? spec.claimed_height : spec.height);
  for (const int value : {spec.bits, spec.color_type, 0, 0, spec.interlaced ? 1 : 0}) {
    header.push_back(static_cast<uint8_t>(value));
  }
  PutChunk(file, "IHDR", header);
  if (!spec.palette.empty()) PutChunk(file, "PLTE", spec.palette);
  if (!spec.transparency.empty()) PutChunk(file, "tRNS", spec.transparency);
  Bytes raw;
  if (spec.interlaced) {
    PutPass(spec, 0, 0, 8, 8, raw);
    PutPass(spec, 0, 4, 8, 8, raw);
    PutPass(spec, 4, 0, 8, 4, raw);
    PutPass(spec, 0, 2, 4, 4, raw);
    PutPass(spec, 2, 0, 4, 2, raw);
    PutPass(spec, 0, 1, 2, 2, raw);
    PutPass(spec, 1, 0, 2, 1, raw);
  } else {
    PutPass(spec, 0, 0, 1, 1, raw);
  }
  uLongf size = compressBound(raw.size());
  Bytes deflated(size);
  compress(deflated.data(), &size, raw.data(), raw.size());
  deflated.resize(size);
  PutChunk(file, "IDAT", deflated);
  PutChunk(file, "IEND", {});
  return file;
}

Bytes Photo(int height, int width, int channels) {
  Bytes pixels;
  pixels.reserve(static_cast<size_t>(height) * width * channels);
  const RandomStream stream(1, RandomPurpose::kSynthetic, 0, 0, 0);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const uint32_t noise = stream.Block(static_cast<uint32_t>(y * width + x))[0];
      for (int k = 0; k < channels; ++k) {
        // Triangle waves of integers, which are the same on all machines.
        const int wave = std::abs((3 * y + (k + 1) * x) % 256 - 128);
        const int grain = static_cast<int>(noise >> (8 * k) & 15);
        pixels.push_back(static_cast<uint8_t>(40 + wave + (x / 23 + y / 31 + k) % 3 * 20 + grain));
      }
    }
  }
  return pixels;
}

Image WholeImage(int64_t height, int64_t width, int64_t channels, Bytes pixels) {
  Image image;
  image.height = height;
  image.width = width;
  image.channels = channels;
  image.pixels = std::move(pixels);
  return image;
}

}  // namespace muster::testing
