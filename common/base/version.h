// The version of Muster, from the CMake project; also in packages, checkpoints and model files.
#pragma once

namespace muster {

extern const char* const kVersion;  // "MAJOR.MINOR.PATCH"

}  // namespace muster
