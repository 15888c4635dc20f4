// Decodes a part of a PNG with valid checksums: it has the pixels of the whole. The first bytes
// select the part.
#include <zlib.h>

#include "tests/fuzz/check_image.h"

namespace muster::fuzz {
namespace fuzz_png {

constexpr size_t kSignature = 8, kLength = 4, kType = 4, kChecksum = 4;

uint32_t BigEndian(const std::string& file, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(file[at + i]);
  return value;
}

void WriteChecksums(std::string& file) {
  size_t at = kSignature;
  while (at + kLength + kType + kChecksum <= file.size()) {
    const size_t checked = kType + BigEndian(file, at);
    const size_t end = at + kLength + checked;
    if (end + kChecksum > file.size()) return;
    const auto* bytes = reinterpret_cast<const Bytef*>(file.data() + at + kLength);
    const auto checksum = static_cast<uint32_t>(crc32(0, bytes, static_cast<uInt>(checked)));
    for (size_t i = 0; i < 4; ++i) file[end + i] = static_cast<char>(checksum >> (24 - 8 * i));
    at = end + kChecksum;
  }
}

}  // namespace fuzz_png
}  // namespace muster::fuzz

FUZZ_TARGET(png) {
  constexpr size_t kChoices = 10;
  if (size < kChoices) return 0;
  std::string file = muster::fuzz::Input(data + kChoices, size - kChoices).Rest();
  muster::fuzz::fuzz_png::WriteChecksums(file);
  muster::fuzz::CheckImage(file, {data, kChoices});
  return 0;
}
