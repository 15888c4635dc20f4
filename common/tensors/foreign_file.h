// What to say of a file that is no safetensors file.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// Throws Error(kData) that says what the file is and how to come to a safetensors file, if `first`,
// its first bytes, tell that it is of another kind, or of none that is known here.
void RefuseForeignFile(const std::string& path, std::string_view first);

}  // namespace muster
