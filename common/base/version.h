// The version of Muster, from the CMake project. Packages, programs, checkpoints and model files
// use it.
#pragma once

namespace muster {

extern const char* const kVersion;  // "MAJOR.MINOR.PATCH"

}  // namespace muster
