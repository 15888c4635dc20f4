// tcp://HOST:PORT: what it may look like, what it means on this host, and whether a job's
// connections there are encrypted.
//
// HOST is an IPv4 address, a name, an IPv6 address in brackets, or, to listen only, * for every
// IPv4 address of this host. PORT is 1 … 65535, or, to listen only, * (or 0) for any free one.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "proto/config_fwd.h"

namespace muster {

struct TcpAddress {
  // Throws Error(kUsage) if `endpoint` is not of that form.
  static TcpAddress Parse(const std::string& endpoint);

  bool any_host() const { return host == "*" || host == "0.0.0.0" || host == "::"; }
  std::string ToEndpoint() const;

  std::string host;   // without brackets
  uint16_t port = 0;  // 0: any free one
};

bool IsTcp(const std::string& endpoint);

// Throws Error(kUsage) unless `endpoint` is something that a worker can connect to:
// tcp://HOST:PORT with a host that has an address, ipc://NAME or local://@NAME.
void CheckConnectable(const std::string& endpoint);

// A socket address. A name stands for its first IPv4 address, and for its first IPv6 address if it
// has no other: the same at the server and at the workers, whatever the resolver's order.
class ResolvedAddress {
 public:
  // Throws Error(kUsage) at once for a name that has no address.
  explicit ResolvedAddress(const TcpAddress& address);

  bool ipv6() const { return storage_.ss_family == AF_INET6; }
  bool loopback() const;
  // One of this host's own addresses, so that a server there runs on this host.
  bool of_this_host() const;
  // In numbers, with the port as it was given.
  std::string ToEndpoint() const;
  // True if something accepts a connection there. Waits for an answer: for own addresses only.
  bool Answers() const;
  // A socket that does not block, on its way there; none if there is no way.
  UniqueFd StartToConnect() const;

 private:
  std::string Numeric() const;

  sockaddr_storage storage_{};
  socklen_t size_ = 0;
  uint16_t port_;
};

// Where a server listens, and what its workers are told to connect to.
struct ListenAddress {
  std::string bind;
  std::string endpoint;
};

// From --endpoint and --bind, of which either or both may be empty: without --bind the server
// listens where its workers connect; without both, on the loopback interface at any free port. All
// interfaces at once are listened on only where --bind says so. Throws Error(kUsage).
ListenAddress ChooseListenAddress(const std::string& endpoint, const std::string& bind);

// Whether a job's connections are encrypted: by cluster.encryption, or, without it, by the address.
// For a worker that connects to `endpoint`. Never for what stays on this host (ipc://, local://).
// Where the setting is not given: for all but the loopback interface. A name that has no address
// here may have one elsewhere, and counts as another host's.
bool IsEncrypted(const config::Cluster& cluster, const std::string& endpoint);

// For a server: if it listens on more than loopback, or its workers are told to connect to more.
bool IsEncrypted(const config::Cluster& cluster, const ListenAddress& address);

}  // namespace muster
