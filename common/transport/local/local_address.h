// local://@NAME as a socket address in the abstract namespace.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <vector>

namespace muster {

struct LocalAddress {
  // Throws Error(kUsage) if `endpoint` is not of the form local://@NAME.
  explicit LocalAddress(const std::string& endpoint);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

// The endpoints at which to listen and to connect, in this order. All users can see the names at
// which others listen, and take one when its process has ended. Then the next one stands in for it,
// which only processes with the token know.
std::vector<std::string> StandInsFor(const std::string& endpoint, const std::string& token);

}  // namespace muster
