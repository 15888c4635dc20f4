#include "common/link/protocol.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "common/link/secret.h"

namespace muster {
namespace {

// The error must not contain the text, because it may be a token with one wrong digit.
std::string CheckToken(std::string text, const std::string& source) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  text = begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw Error(
        ExitCode::kUsage,
        "{}: expected a job token, 32 hexadecimal digits in lower case (`muster token FILE` "
        "creates one)",
        source);
  }
  return text;
}

}  // namespace

uint64_t JobOf(const std::string& token) {
  uint64_t job = 0;
  const auto digest = DeriveFrom(token, "muster job");
  for (size_t i = sizeof job; i-- > 0;) job = job << 8 | digest[i];
  return job;
}

bool SameToken(const std::string& a, const std::string& b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

std::string ReadToken(const std::string& path) {
  const UniqueFd fd = OpenPlainFile(path, "a file with the job token");
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    throw Error(ExitCode::kUsage, "{}: cannot read the token: {}", path, ErrorText(errno));
  }
  if ((info.st_mode & 077) != 0) {
    throw Error(
        ExitCode::kUsage,
        "{}: mode {:04o} lets others use the job token: run chmod 600 {}; if others may have read "
        "it, create a new one (`muster token FILE`)",
        path, info.st_mode & 07777, path);
  }
  std::string text;
  std::array<char, 256> buffer;  // a token file has 33 bytes
  ssize_t n = 0;
  while (text.size() < buffer.size() && (n = ::read(fd.get(), buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  if (n < 0) {
    throw Error(ExitCode::kUsage, "{}: cannot read the token: {}", path, ErrorText(errno));
  }
  return CheckToken(std::move(text), path);
}

std::string FindToken(const std::string& path) {
  std::string text;
  if (char* const value = std::getenv(kTokenVariable)) {
    text = value;
    // /proc/PID/environ shows this memory even after unsetenv.
    std::memset(value, 'x', text.size());
    ::unsetenv(kTokenVariable);
  }
  if (!path.empty()) return ReadToken(path);
  if (text.empty()) return "";
  return CheckToken(std::move(text), kTokenVariable);
}

std::string RequireToken(const std::string& path, const std::string& who) {
  std::string token = FindToken(path);
  if (token.empty()) {
    throw Error(ExitCode::kUsage,
                "{} needs the job's token: pass --token-file FILE (`muster server` prints it), or "
                "set {} to its 32 hexadecimal digits",
                who, kTokenVariable);
  }
  return token;
}

}  // namespace muster
