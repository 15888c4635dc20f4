// local://@NAME as a socket address in the abstract namespace.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

namespace muster {

struct LocalAddress {
  // Throws Error(kUsage) if `endpoint` is not of the form local://@NAME.
  explicit LocalAddress(const std::string& endpoint);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

}  // namespace muster
