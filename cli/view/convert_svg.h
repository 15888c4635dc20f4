// Converts pictures with the program rsvg-convert of librsvg, which may be missing.
#pragma once

#include <string>

namespace muster {

// Returns the picture in the format "png", with 288 pixels an inch, or "pdf". Throws Error: kUsage
// if there is no rsvg-convert, kFailure if it fails, kDeadline if it takes longer than a minute.
// Call it from the main thread (see ChildProcess).
std::string ConvertSvg(const std::string& svg, const std::string& format);

}  // namespace muster
