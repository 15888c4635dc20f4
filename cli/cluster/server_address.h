// The address at which workers on other hosts reach a server on this one.
#pragma once

#include <string>

namespace muster {

struct ServerAddress {
  std::string address;    // numeric
  std::string interface;  // "eth0"; "" if unknown

  std::string endpoint() const;  // with any free port
  std::string endpoint(int port) const;
};

// The address of this network interface (cluster.interface), an IPv4 address if it has one. Throws
// Error(kUsage) if there is no such interface or it has no address.
ServerAddress AddressOfInterface(const std::string& interface);

// The address from which packets to `host`, a name or an address, leave. Throws Error(kUsage) if
// the host is unknown or there is no route.
ServerAddress AddressTowards(const std::string& host);

// Throws Error(kUsage) if `address` is one that `host`, which is not this one, cannot reach.
void RequireReachable(const ServerAddress& address, const std::string& host);

// The interface with this numeric address, or "".
std::string InterfaceWith(const std::string& address);
// A TCP port that no process uses at this numeric address; 0 if there is none.
int FreePortOf(const std::string& address);
// The largest packet that it sends, in bytes; 0 if unknown.
int MtuOf(const std::string& interface);

}  // namespace muster
