#include "ps/record/run_id.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {

std::string NewRunId() {
  std::array<uint64_t, 2> bits{};
  // A request this small is never interrupted or cut short.
  if (::getrandom(bits.data(), sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    throw Error(ExitCode::kFailure, "getrandom: {}", ErrorText(errno));
  }
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace muster
