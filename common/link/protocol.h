// Numbers that both sides of the protocol must agree on. See proto/PROTOCOL.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster {

inline constexpr uint32_t kProtocolVersion = 11;

// Of Ready.convolutions.
inline constexpr size_t kMostConvolutionsBytes = 4096;

// Why a worker is refused, for people.
inline constexpr const char* kWrongToken =
    "the job token is wrong: it is not that of this server's job";

// The job's identity in every message: XXH3-64 of the token's 32 hexadecimal digits.
uint64_t JobOf(const std::string& token);

// Compares tokens in the same time wherever the first difference is.
bool SameToken(const std::string& a, const std::string& b);

// Where a process started by hand finds the token, unless --token-file names a file.
inline constexpr const char* kTokenVariable = "MUSTER_TOKEN";

// Reads a token from a file: 32 hexadecimal digits, white space around them ignored. Throws
// Error(kUsage), also if others than the file's owner may read or write it.
std::string ReadToken(const std::string& path);

// The token of `path`, or, if that is empty, of MUSTER_TOKEN, which is taken out of the
// environment, and out of what /proc shows of it, so that no child inherits it. Empty if there is
// neither. Throws Error(kUsage).
std::string FindToken(const std::string& path);

// The same for a process that cannot do without. `who` needs it: "worker 1".
std::string RequireToken(const std::string& path, const std::string& who);

}  // namespace muster
