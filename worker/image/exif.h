// Reads the EXIF orientation of a photo.
#pragma once

#include <cstdint>
#include <span>

namespace muster {

// `segment` holds the contents of a JPEG's APP1 marker. Returns 1 to 8 as in EXIF's tag
// Orientation; 1 (upright) if the segment is not EXIF, has no such tag, or is damaged. Reads only
// the first directory.
int ExifOrientation(std::span<const uint8_t> segment);

}  // namespace muster
