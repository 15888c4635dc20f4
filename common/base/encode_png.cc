#include "common/base/encode_png.h"

#include <zlib.h>

#include "common/base/error.h"

namespace muster {
namespace {

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>((value >> shift) & 0xff);
  return bytes;
}

// A PNG chunk: length, type, data, and the CRC-32 of type and data.
std::string PngChunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const auto crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndian(static_cast<uint32_t>(data.size())) + body +
         BigEndian(static_cast<uint32_t>(crc));
}

std::string Compressed(const std::string& text) {
  uLongf size = ::compressBound(text.size());
  std::string packed(size, '\0');
  MUSTER_CHECK(::compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                          reinterpret_cast<const Bytef*>(text.data()), text.size()) == Z_OK);
  packed.resize(size);
  return packed;
}

}  // namespace

std::string EncodePng(uint32_t height, uint32_t width, const std::string& pixels) {
  MUSTER_CHECK(pixels.size() == size_t{height} * width * 3);
  constexpr char kDepth = 8, kRgb = 2;
  std::string header = BigEndian(width) + BigEndian(height);
  header += {kDepth, kRgb, 0, 0, 0};
  std::string rows;
  const size_t row = size_t{width} * 3;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    rows.append(pixels, y * row, row);
  }
  return "\x89PNG\r\n\x1a\n" + PngChunk("IHDR", header) + PngChunk("IDAT", Compressed(rows)) +
         PngChunk("IEND", "");
}

}  // namespace muster
