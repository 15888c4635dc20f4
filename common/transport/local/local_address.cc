#include "common/transport/local/local_address.h"

#include <cstddef>
#include <cstring>

#include "common/base/error.h"
#include "common/transport/local/local_link.h"

namespace muster {

LocalAddress::LocalAddress(const std::string& endpoint) {
  constexpr std::string_view kScheme = "local://@";
  if (!endpoint.starts_with(kScheme) || endpoint.size() == kScheme.size() ||
      endpoint.size() - kScheme.size() >= sizeof address.sun_path) {
    throw Error(ExitCode::kUsage, "{}: expected local://@NAME with a NAME of 1 to {} characters",
                endpoint, sizeof address.sun_path - 1);
  }
  const std::string name = endpoint.substr(kScheme.size());
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // [0] stays 0: abstract namespace
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

std::string LocalEndpoint(uint64_t job) { return fmt::format("local://@muster-{:016x}", job); }

}  // namespace muster
