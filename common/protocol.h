// Numbers that both sides of the protocol must agree on. See proto/PROTOCOL.md.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

inline constexpr uint32_t kProtocolVersion = 1;

// The job's identity in every message: XXH3-64 of the token's 32 hexadecimal digits.
uint64_t JobOf(const std::string& token);

// Reads a token from a file: 32 hexadecimal digits, white space around them ignored. Throws
// Error(kUsage).
std::string ReadToken(const std::string& path);

}  // namespace muster
