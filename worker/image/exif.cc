#include "worker/image/exif.h"

#include <algorithm>
#include <string_view>

namespace muster {
namespace {

using std::literals::operator""sv;

constexpr uint32_t kOrientationTag = 0x112, kShort = 3;
constexpr size_t kEntryBytes = 12;

// A TIFF file. It begins with "II" if it is little-endian, or "MM" if it is big-endian. Bytes
// beyond its end read as 0.
struct Tiff {
  std::span<const uint8_t> bytes;
  bool big_endian;

  uint32_t Byte(size_t at) const { return at < bytes.size() ? bytes[at] : 0; }
  uint32_t Short(size_t at) const {
    return big_endian ? Byte(at) << 8 | Byte(at + 1) : Byte(at + 1) << 8 | Byte(at);
  }
  uint32_t Long(size_t at) const {
    return big_endian ? Short(at) << 16 | Short(at + 2) : Short(at + 2) << 16 | Short(at);
  }
};

}  // namespace

int ExifOrientation(std::span<const uint8_t> segment) {
  constexpr std::string_view kName = "Exif\0\0"sv, kLittle = "II*\0"sv, kBig = "MM\0*"sv;
  const std::string_view text(reinterpret_cast<const char*>(segment.data()), segment.size());
  if (!text.starts_with(kName)) return 1;
  const std::string_view order = text.substr(kName.size(), kBig.size());
  if (order != kLittle && order != kBig) return 1;
  const Tiff tiff{segment.subspan(kName.size()), order == kBig};

  const size_t directory = tiff.Long(4);
  if (directory >= tiff.bytes.size()) return 1;
  const size_t room = (tiff.bytes.size() - directory) / kEntryBytes;
  const size_t entries = std::min<size_t>(tiff.Short(directory), room);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;  // tag, type, count, value
    if (tiff.Short(entry) != kOrientationTag) continue;
    const uint32_t value = tiff.Short(entry + 8);
    const bool valid = tiff.Short(entry + 2) == kShort && tiff.Long(entry + 4) == 1;
    return valid && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace muster
