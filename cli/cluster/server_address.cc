#include "cli/cluster/server_address.h"

#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "common/link/tcp_address.h"

namespace muster {
namespace {

// All addresses of this host that a server can listen at.
std::vector<ServerAddress> AllAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<ServerAddress> found, found_v6;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    // A link-local address means nothing without the name of the other host's interface.
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr)) {
      continue;
    }
    std::array<char, NI_MAXHOST> text{};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    (void)::getnameinfo(one->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    (family == AF_INET ? found : found_v6).push_back({text.data(), one->ifa_name});
  }
  found.insert(found.end(), found_v6.begin(), found_v6.end());
  return found;
}

std::string KnownInterfaces() {
  std::vector<std::string> known;
  for (const ServerAddress& one : AllAddresses()) {
    known.push_back(fmt::format("{} ({})", one.interface, one.address));
  }
  return known.empty() ? "this host has none with an address" : "known: " + Join(known, ", ");
}

}  // namespace

std::string ServerAddress::endpoint() const { return TcpAddress{.host = address}.ToEndpoint(); }

std::string ServerAddress::endpoint(int port) const {
  return TcpAddress{.host = address, .port = static_cast<uint16_t>(port)}.ToEndpoint();
}

ServerAddress AddressOfInterface(const std::string& interface) {
  for (const ServerAddress& one : AllAddresses()) {
    if (one.interface == interface) return one;
  }
  throw Error(ExitCode::kUsage,
              "cluster.interface={}: expected a network interface of this host with an address; {}",
              Shown(interface), KnownInterfaces());
}

ServerAddress AddressTowards(const std::string& host) {
  const std::string address = ResolvedAddress(TcpAddress{.host = host}).SourceAddress();
  if (address.empty()) {
    throw Error(ExitCode::kUsage,
                "this host has no route to {}; choose the interface that reaches it with --set "
                "cluster.interface=NAME; {}",
                host, KnownInterfaces());
  }
  return {address, InterfaceWith(address)};
}

void RequireReachable(const ServerAddress& address, const std::string& host) {
  if (!ResolvedAddress(TcpAddress{.host = address.address}).loopback()) return;
  throw Error(ExitCode::kUsage,
              "host {} would have to reach the server at {}, but that address ({}) is known only "
              "on this host; expected an address of a network: check what {} means in /etc/hosts, "
              "or choose with --set cluster.interface=NAME; {}",
              host, address.address, address.interface, host, KnownInterfaces());
}

std::string InterfaceWith(const std::string& address) {
  for (const ServerAddress& one : AllAddresses()) {
    if (one.address == address) return one.interface;
  }
  return "";
}

int FreePortOf(const std::string& address) {
  const UniqueFd fd = ResolvedAddress(TcpAddress{.host = address}).Listen();
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (!fd.valid() || ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return 0;
  }
  // The port is at the same place in an IPv6 address.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

int MtuOf(const std::string& interface) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  interface.copy(request.ifr_name, sizeof request.ifr_name - 1);
  const bool known = socket.valid() && ::ioctl(socket.get(), SIOCGIFMTU, &request) == 0;
  return known ? request.ifr_mtu : 0;
}

}  // namespace muster
