// Reads the one tag of EXIF that says how a photo was held.
#pragma once

#include <cstdint>
#include <span>

namespace muster {

// `segment`: the contents of a JPEG's APP1 marker. 1 to 8 as in EXIF's tag Orientation; 1 (upright)
// if the segment is no EXIF, has no such tag, or is damaged. Reads only the first directory.
int ExifOrientation(std::span<const uint8_t> segment);

}  // namespace muster
