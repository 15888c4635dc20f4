#include "worker/image/exif.h"

#include <algorithm>
#include <optional>

namespace muster {
namespace {

using std::literals::operator""sv;

constexpr uint32_t kOrientationTag = 0x112;
constexpr uint32_t kShort = 3, kLong = 4, kSignedShort = 8, kSignedLong = 9;
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

std::optional<uint32_t> InExif(std::span<const uint8_t> exif) {
  constexpr std::string_view kLittle = "II*\0"sv, kBig = "MM\0*"sv;
  std::string_view text(reinterpret_cast<const char*>(exif.data()), exif.size());
  // Some programs write the name once more.
  while (text.starts_with(kExifName)) text.remove_prefix(kExifName.size());
  const std::string_view order = text.substr(0, kBig.size());
  if (order != kLittle && order != kBig) return std::nullopt;
  const Tiff tiff{exif.last(text.size()), order == kBig};

  const size_t directory = tiff.Long(4);
  if (directory >= tiff.bytes.size()) return std::nullopt;
  const size_t room = (tiff.bytes.size() - directory) / kEntryBytes;
  const size_t entries = std::min<size_t>(tiff.Short(directory), room);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;  // tag, type, count, value
    if (tiff.Short(entry) != kOrientationTag) continue;
    const uint32_t type = tiff.Short(entry + 2);
    if (tiff.Long(entry + 4) != 1) return 0;
    if (type == kShort || type == kSignedShort) return tiff.Short(entry + 8);
    return type == kLong || type == kSignedLong ? tiff.Long(entry + 8) : 0;
  }
  return std::nullopt;
}

// XMP is XML with this value as an attribute or an element.
std::optional<uint32_t> InXmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at; (at = xmp.find(kName)) != xmp.npos;) {
    xmp.remove_prefix(at + kName.size());
    const size_t digit = xmp.starts_with("=\"") ? 2 : xmp.starts_with(">") ? 1 : xmp.size();
    if (digit < xmp.size() && '0' <= xmp[digit] && xmp[digit] <= '9') return xmp[digit] - '0';
  }
  return std::nullopt;
}

}  // namespace

int Orientation(std::span<const uint8_t> exif, std::string_view xmp) {
  std::optional<uint32_t> value = InExif(exif);
  if (!value) value = InXmp(xmp);
  return value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
}

}  // namespace muster
