#include "common/link/tcp_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>

#include "common/base/error.h"
#include "common/base/leading_zero.h"
#include "common/base/process.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr std::string_view kScheme = "tcp://";

[[noreturn]] void Malformed(const std::string& endpoint) {
  throw Error(
      ExitCode::kUsage,
      "{}: expected tcp://HOST:PORT, where HOST is an address or a name (an IPv6 address in "
      "brackets: tcp://[::1]:7700) and PORT is 1 to 65535 without leading zeros, or * for any free "
      "port",
      endpoint);
}

// Checks that an endpoint other than tcp:// is a name on this host.
void CheckName(const std::string& endpoint) {
  for (const std::string_view scheme : {"ipc://", "local://@"}) {
    if (endpoint.starts_with(scheme) && endpoint.size() > scheme.size()) return;
  }
  throw Error(ExitCode::kUsage,
              "{}: expected tcp://HOST:PORT, or ipc://@NAME or local://@NAME on one host",
              endpoint);
}

bool IsV4Loopback(const in_addr& address) { return (ntohl(address.s_addr) >> 24) == 127; }

const in_addr& V4(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
}
const in6_addr& V6(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
}

std::string Numeric(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  (void)::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text.data(), text.size(),
                      nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

}  // namespace

bool IsTcp(const std::string& endpoint) { return endpoint.starts_with(kScheme); }

void CheckConnectable(const std::string& endpoint) {
  if (!IsTcp(endpoint)) return CheckName(endpoint);
  const TcpAddress address = TcpAddress::Parse(endpoint);
  if (address.port == 0 || address.any_host()) {
    throw Error(ExitCode::kUsage,
                "{}: expected the server's address and port, which it prints when it starts",
                endpoint);
  }
  (void)ResolvedAddress(address);
}

TcpAddress TcpAddress::Parse(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (!IsTcp(endpoint) || colon < kScheme.size() + 1) Malformed(endpoint);
  TcpAddress address;
  address.host = endpoint.substr(kScheme.size(), colon - kScheme.size());
  const bool brackets = address.host.front() == '[' && address.host.back() == ']';
  if (brackets) address.host = address.host.substr(1, address.host.size() - 2);
  const bool v6 = address.host.find(':') != std::string::npos;
  if (address.host.empty() || v6 != brackets ||
      address.host.find_first_of("/@;[] \t") != std::string::npos) {
    Malformed(endpoint);
  }
  const std::string port = endpoint.substr(colon + 1);
  if (port == "*") return address;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (port.empty() || HasLeadingZero(port) || error != std::errc() ||
      end != port.data() + port.size())
    Malformed(endpoint);
  return address;
}

std::string TcpAddress::ToEndpoint() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}{}:{}", kScheme, v6 ? "[" : "", host, v6 ? "]" : "",
                     port == 0 ? "*" : std::to_string(port));
}

ResolvedAddress::ResolvedAddress(const TcpAddress& address) : port_(address.port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const std::string host = address.host == "*" ? "0.0.0.0" : address.host;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, [](addrinfo* list) {
    if (list != nullptr) ::freeaddrinfo(list);
  });
  const addrinfo* chosen = nullptr;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    if (chosen == nullptr || (chosen->ai_family == AF_INET6 && entry->ai_family == AF_INET)) {
      chosen = entry;
    }
  }
  if (code != 0 || chosen == nullptr) {
    throw Error(ExitCode::kUsage,
                "{}: cannot resolve the name {}: {}; check its spelling, or use the numeric "
                "address",
                address.ToEndpoint(), address.host, ::gai_strerror(code));
  }
  std::memcpy(&storage_, chosen->ai_addr, chosen->ai_addrlen);
  size_ = chosen->ai_addrlen;
}

bool ResolvedAddress::loopback() const {
  const auto* address = reinterpret_cast<const sockaddr*>(&storage_);
  return ipv6() ? IN6_IS_ADDR_LOOPBACK(&V6(address)) != 0 : IsV4Loopback(V4(address));
}

// Unlike netlink, this works in a sandbox. It sends nothing.
bool ResolvedAddress::FindSource(sockaddr_storage& source) const {
  const UniqueFd fd(::socket(storage_.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t size = sizeof source;
  return fd.valid() &&
         ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage_), size_) == 0 &&
         ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&source), &size) == 0;
}

bool ResolvedAddress::of_this_host() const {
  if (loopback()) return true;
  // If the destination address is local, the kernel also uses it as the source address.
  sockaddr_storage storage{};
  if (!FindSource(storage)) return false;
  const auto* mine = reinterpret_cast<const sockaddr*>(&storage_);
  const auto* source = reinterpret_cast<const sockaddr*>(&storage);
  return ipv6() ? std::memcmp(&V6(source), &V6(mine), sizeof(in6_addr)) == 0
                : std::memcmp(&V4(source), &V4(mine), sizeof(in_addr)) == 0;
}

std::string ResolvedAddress::SourceAddress() const {
  sockaddr_storage source{};
  return FindSource(source) ? Numeric(source, size_) : "";
}

std::string ResolvedAddress::ToEndpoint() const {
  return TcpAddress{Numeric(storage_, size_), port_}.ToEndpoint();
}

UniqueFd ResolvedAddress::Listen() const {
  UniqueFd fd(::socket(storage_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* address = reinterpret_cast<const sockaddr*>(&storage_);
  if (fd.valid() && (::bind(fd.get(), address, size_) != 0 || ::listen(fd.get(), 64) != 0)) {
    const int error = errno;
    fd.Reset();
    errno = error;
  }
  return fd;
}

bool ResolvedAddress::Answers() const {
  const UniqueFd fd(::socket(storage_.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd.valid() &&
         ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&storage_), size_) == 0;
}

UniqueFd ResolvedAddress::StartToConnect() const {
  UniqueFd fd(::socket(storage_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* address = reinterpret_cast<const sockaddr*>(&storage_);
  if (fd.valid() && ::connect(fd.get(), address, size_) != 0 && errno != EINPROGRESS) fd = {};
  return fd;
}

ListenAddress ChooseListenAddress(const std::string& endpoint, const std::string& bind) {
  if (endpoint.empty() && bind.empty()) return {"tcp://127.0.0.1:*", "tcp://127.0.0.1:*"};
  if (!IsTcp(endpoint.empty() ? bind : endpoint)) {
    // For local endpoints, the server and its workers use the same name.
    if (!endpoint.empty() && !bind.empty() && endpoint != bind) {
      throw Error(ExitCode::kUsage, "--bind {} and --endpoint {}: only tcp:// endpoints allow both",
                  bind, endpoint);
    }
    const std::string& one = endpoint.empty() ? bind : endpoint;
    CheckName(one);
    return {one, one};
  }
  if (!bind.empty()) (void)TcpAddress::Parse(bind);
  if (endpoint.empty()) {
    TcpAddress told = TcpAddress::Parse(bind);
    if (told.any_host()) told.host = HostName();
    return {bind, told.ToEndpoint()};
  }
  const TcpAddress told = TcpAddress::Parse(endpoint);
  if (told.any_host()) {
    const std::string port = told.port == 0 ? "*" : std::to_string(told.port);
    throw Error(ExitCode::kUsage,
                "--endpoint {0}: expected one address of this host (tcp://{1}:{2}), because "
                "workers connect to it; to listen on all interfaces, add --bind tcp://*:{2}",
                endpoint, HostName(), port);
  }
  return {bind.empty() ? endpoint : bind, endpoint};
}

bool IsEncrypted(const config::Cluster& cluster, const std::string& endpoint) {
  if (!IsTcp(endpoint)) return false;
  if (cluster.has_encryption()) return cluster.encryption() == config::Cluster::CURVE;
  try {
    return !ResolvedAddress(TcpAddress::Parse(endpoint)).loopback();
  } catch (const Error&) {  // the name has no address here, so it belongs to another host
    return true;
  }
}

bool IsEncrypted(const config::Cluster& cluster, const ListenAddress& address) {
  return IsEncrypted(cluster, address.bind) || IsEncrypted(cluster, address.endpoint);
}

}  // namespace muster
