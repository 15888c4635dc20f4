#include "common/transport/local/local_address.h"

#include <cstddef>
#include <cstring>

#include "common/base/error.h"
#include "common/link/secret.h"
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

std::vector<std::string> StandInsFor(const std::string& endpoint, const std::string& token) {
  constexpr int kMost = 8;
  std::vector<std::string> endpoints{endpoint};
  while (!token.empty() && std::ssize(endpoints) < kMost) {
    const std::string label = fmt::format("muster name {} {}", endpoints.size(), endpoint);
    endpoints.push_back("local://@muster-" + DigitsFrom(token, label));
  }
  return endpoints;
}

std::string LocalEndpoint(uint64_t job) { return fmt::format("local://@muster-{:016x}", job); }

}  // namespace muster
