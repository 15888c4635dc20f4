// Which algorithm does what, and the one form in which that is kept and sent:
//
//   muster algorithms 1
//   on: NVIDIA H100 (sm_90, 132 SMs), CUDA 13.0, …
//   KEY: VALUE                       one line for each key, in alphabetical order
//   end: 0123456789abcdef            FNV-1a of all before, 64 bits
//
// Keys and values are what the backend makes of them: printable ASCII, no colon in a key.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace muster {

struct AlgorithmTable {
  // More is neither written nor read; as the server's kMostTuningBytes (common/link/protocol.h).
  static constexpr size_t kMostBytes = size_t{1} << 20;

  std::string on;  // card and libraries, in words
  std::map<std::string, std::string> chosen;
};

// Leaves out what would make it longer than kMostBytes.
std::string TextOf(const AlgorithmTable& table);

// Throws Error(kData) that says what is wrong with it.
AlgorithmTable ParseAlgorithmTable(std::string_view text);

}  // namespace muster
