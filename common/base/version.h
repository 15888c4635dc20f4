// The version of Muster: that of the CMake project, which packages are named after and which
// programs, checkpoints and model files state.
#pragma once

namespace muster {

extern const char* const kVersion;  // "MAJOR.MINOR.PATCH"

}  // namespace muster
