#include "common/protocol.h"

#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/error.h"

namespace muster {

uint64_t JobOf(const std::string& token) { return XXH3_64bits(token.data(), token.size()); }

std::string ReadToken(const std::string& path) {
  std::ifstream in(path);
  std::string token;
  if (!in) throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, std::strerror(errno));
  in >> token;
  if (token.size() != 32 || token.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw Error(ExitCode::kUsage, "{}: expected a job token, 32 hexadecimal digits", path);
  }
  return token;
}

}  // namespace muster
