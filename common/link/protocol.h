// Constants that both sides of the protocol must agree on. See proto/PROTOCOL.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster {

inline constexpr uint32_t kProtocolVersion = 19;

// The maximum size of Ready.convolutions.
inline constexpr size_t kMostConvolutionsBytes = 4096;

// The reason for refusing a worker, as shown to users.
inline constexpr const char* kWrongToken = "the job token is wrong: it belongs to another job";

// The job's identity in every message, from the token's 32 hexadecimal digits. Who reads it learns
// nothing about the token.
uint64_t JobOf(const std::string& token);

// Compares tokens. The time does not depend on the position of the first difference.
bool SameToken(const std::string& a, const std::string& b);

// The environment variable that contains the token if a process is started by hand without
// --token-file.
inline constexpr const char* kTokenVariable = "MUSTER_TOKEN";

// Reads a token from a file: 32 hexadecimal digits, ignoring surrounding white space. Throws
// Error(kUsage) if there is none, or if users other than the owner can access the file.
std::string ReadToken(const std::string& path);

// Reads the token from `path`, or from MUSTER_TOKEN if `path` is empty. Removes MUSTER_TOKEN from
// the environment and from /proc, so that no child inherits it. Returns "" if there is no token.
// Throws Error(kUsage).
std::string FindToken(const std::string& path);

// The same for a process that needs a token: throws if there is none. `who` is the process's name
// in the error: "worker 1".
std::string RequireToken(const std::string& path, const std::string& who);

}  // namespace muster
