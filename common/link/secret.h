// Random numbers that nobody can guess, and what processes with the same token derive from it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// 128 random bits, as 32 hexadecimal digits. Throws Error(kFailure).
std::string RandomDigits();

// HMAC-SHA-256 of the label, keyed by the token: a pseudo-random function, so different labels give
// unrelated values, and none tells about the token. Throws Error(kFailure) if OpenSSL cannot
// compute it.
std::array<uint8_t, 32> DeriveFrom(const std::string& token, std::string_view label);

// Its first 128 bits, as 32 hexadecimal digits.
std::string DigitsFrom(const std::string& token, std::string_view label);

}  // namespace muster
