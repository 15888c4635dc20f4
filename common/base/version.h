// The version of Muster, from the CMake project. Packages, checkpoints and model files contain it.
#pragma once

namespace muster {

extern const char* const kVersion;  // "MAJOR.MINOR.PATCH"

}  // namespace muster
