// Endpoints of the form tcp://HOST:PORT: their syntax, what they mean on this host, and whether a
// job's connections to them are encrypted.
//
// HOST is an IPv4 address, a name, an IPv6 address in brackets, or, for listening only, * for all
// IPv4 addresses of this host. PORT is 1 … 65535, or, for listening only, * (or 0) for any free
// port.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "proto/config_fwd.h"

namespace muster {

struct TcpAddress {
  // Throws Error(kUsage) if `endpoint` does not have this form.
  static TcpAddress Parse(const std::string& endpoint);

  bool any_host() const { return host == "*" || host == "0.0.0.0" || host == "::"; }
  std::string ToEndpoint() const;

  std::string host;   // without brackets
  uint16_t port = 0;  // 0: any free port
};

bool IsTcp(const std::string& endpoint);

// Throws Error(kUsage) unless a worker can connect to `endpoint`: tcp://HOST:PORT with a resolvable
// host, ipc://NAME or local://@NAME.
void CheckConnectable(const std::string& endpoint);

// A socket address. A name resolves to its first IPv4 address, or to its first IPv6 address if it
// has no IPv4 address. So server and workers agree regardless of the resolver's order.
class ResolvedAddress {
 public:
  // Throws Error(kUsage) at once if a name has no address.
  explicit ResolvedAddress(const TcpAddress& address);

  bool ipv6() const { return storage_.ss_family == AF_INET6; }
  bool loopback() const;
  // Whether this is one of this host's own addresses, so that a server there runs on this host.
  bool of_this_host() const;
  // The numeric address of this host from which packets to that address leave; "" if there is no
  // route to it.
  std::string SourceAddress() const;
  // Returns the numeric endpoint with the given port.
  std::string ToEndpoint() const;
  // A non-blocking socket that listens there, on any free port if the port is 0; invalid, with
  // errno, if that fails.
  UniqueFd Listen() const;
  // Whether a process accepts connections at this address. Blocks, so use it only for this host's
  // addresses.
  bool Answers() const;
  // Returns a non-blocking socket that has started to connect, or an invalid one if there is no
  // route.
  UniqueFd StartToConnect() const;

 private:
  // Returns false if there is no route.
  bool FindSource(sockaddr_storage& source) const;

  sockaddr_storage storage_{};
  socklen_t size_ = 0;
  uint16_t port_;
};

// The addresses at which a server listens and to which its workers connect.
struct ListenAddress {
  std::string bind;
  std::string endpoint;
};

// Combines --endpoint and --bind, which may be empty. Without --bind, the server listens at the
// address that its workers connect to. Without both, it listens on any free port of the loopback
// interface. It listens on all interfaces only if --bind requests it. Throws Error(kUsage).
ListenAddress ChooseListenAddress(const std::string& endpoint, const std::string& bind);

// Whether a worker that connects to `endpoint` encrypts its connection. Connections that stay on
// this host (ipc://, local://) are never encrypted. For others, cluster.encryption decides; if it
// is unset, all are encrypted except those on the loopback interface. Names that cannot be resolved
// here count as remote.
bool IsEncrypted(const config::Cluster& cluster, const std::string& endpoint);

// The same for a server: true if connections to its listening address or to the workers' endpoint
// are encrypted.
bool IsEncrypted(const config::Cluster& cluster, const ListenAddress& address);

}  // namespace muster
