// Files and directories that are often given where a safetensors file is expected.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

inline constexpr size_t kWrongFileBytes = 4096;

// Recognizes PyTorch pickles, NumPy archives, Git LFS pointers and directories. Returns what `path`
// is and what to do instead, such as "is a PyTorch file (torch.save), expected a safetensors file.
// Convert it: ..."; "" for any other file. `first`: up to kWrongFileBytes bytes of its beginning.
std::string DescribeWrongFile(const std::string& path, std::string_view first);

}  // namespace muster
