// tcp://HOST:PORT endpoints: their syntax, their meaning on this host, and whether a job's
// connections to them are encrypted.
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

// Throws Error(kUsage) unless a worker can connect to `endpoint`: tcp://HOST:PORT with a host that
// has an address, ipc://NAME or local://@NAME.
void CheckConnectable(const std::string& endpoint);

// A socket address. A name resolves to its first IPv4 address, or to its first IPv6 address if it
// has no IPv4 address. So server and workers agree whatever the resolver's order.
class ResolvedAddress {
 public:
  // Throws Error(kUsage) at once if a name has no address.
  explicit ResolvedAddress(const TcpAddress& address);

  bool ipv6() const { return storage_.ss_family == AF_INET6; }
  bool loopback() const;
  // Whether this is one of this host's own addresses, so that a server there runs on this host.
  bool of_this_host() const;
  // The numeric endpoint with the given port.
  std::string ToEndpoint() const;
  // True if a process accepts connections there. Blocks, so use it for own addresses only.
  bool Answers() const;
  // A non-blocking socket that has started to connect; invalid if there is no route.
  UniqueFd StartToConnect() const;

 private:
  std::string Numeric() const;

  sockaddr_storage storage_{};
  socklen_t size_ = 0;
  uint16_t port_;
};

// Where a server listens, and where its workers connect.
struct ListenAddress {
  std::string bind;
  std::string endpoint;
};

// Combines --endpoint and --bind, which may be empty. Without --bind the server listens where its
// workers connect; without both, on any free port of the loopback interface. It only listens on all
// interfaces if --bind requests it. Throws Error(kUsage).
ListenAddress ChooseListenAddress(const std::string& endpoint, const std::string& bind);

// Whether a job's connections are encrypted, for a worker that connects to `endpoint`. Never if
// they stay on this host (ipc://, local://). Otherwise as cluster.encryption says; if unset, for
// all but the loopback interface. Names without an address here count as remote.
bool IsEncrypted(const config::Cluster& cluster, const std::string& endpoint);

// For a server: true if that holds for its listening address or for the workers' endpoint.
bool IsEncrypted(const config::Cluster& cluster, const ListenAddress& address);

}  // namespace muster
