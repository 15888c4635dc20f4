#include "tests/ps/tensorboard/png_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace muster::testing {
namespace {

uint32_t BigEndianAt(const std::string& text, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(text.at(at + i));
  return value;
}

const Bytef* Bytes(const std::string& text) { return reinterpret_cast<const Bytef*>(text.data()); }

}  // namespace

PngReader::PngReader(const std::string& file) {
  EXPECT_EQ(file.substr(0, 8), "\x89PNG\r\n\x1a\n");
  for (size_t at = 8; at < file.size();) {
    const uint32_t length = BigEndianAt(file, at);
    const std::string body = file.substr(at + 4, length + 4);
    EXPECT_EQ(BigEndianAt(file, at + 8 + length),
              ::crc32(0, Bytes(body), static_cast<uInt>(body.size())));
    if (body.starts_with("IHDR")) {
      width_ = static_cast<int>(BigEndianAt(body, 4));
      height_ = static_cast<int>(BigEndianAt(body, 8));
      EXPECT_EQ(body.substr(12), std::string("\x08\x02\x00\x00\x00", 5));  // 8 bits, RGB
      rows_.resize(static_cast<size_t>(height_) * (3 * static_cast<size_t>(width_) + 1));
    } else if (body.starts_with("IDAT")) {
      uLongf size = rows_.size();
      EXPECT_EQ(::uncompress(reinterpret_cast<Bytef*>(rows_.data()), &size, Bytes(body) + 4,
                             body.size() - 4),
                Z_OK);
      EXPECT_EQ(size, rows_.size());
    }
    at += length + 12;
  }
}

uint32_t PngReader::At(int x, int y) const {
  const size_t row = static_cast<size_t>(y) * (3 * static_cast<size_t>(width_) + 1);
  const size_t at = row + 1 + 3 * static_cast<size_t>(x);
  EXPECT_EQ(rows_.at(row), '\0');
  return BigEndianAt(rows_ + std::string(1, '\0'), at) >> 8;
}

}  // namespace muster::testing
