// Reads the orientation of a photo.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace muster {

inline constexpr std::string_view kExifName{"Exif\0\0", 6};  // before EXIF in a JPEG

// Returns 1 to 8 as in EXIF's tag Orientation, like Pillow's exif_transpose: that of the first
// directory of `exif` (a TIFF file) or, if it has none, tiff:Orientation in `xmp`. Returns 1
// (upright) if there is neither, or if the value is none of these.
int Orientation(std::span<const uint8_t> exif, std::string_view xmp);

}  // namespace muster
