// Opens links. cluster.transport and the endpoint select the transport.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "common/link/link.h"
#include "proto/config.pb.h"

namespace muster {

// Listens at `endpoint`: ipc://@NAME (abstract namespace), tcp://HOST:PORT (tcp_address.h) or
// local://@NAME. The NAME * stands for 128 random bits. Throws Error(kFailure) if it cannot bind,
// and Error(kUsage) if `endpoint` is malformed or contradicts `transport`. With AUTO, the server
// also listens on the job's local link. If that fails, it logs the reason and uses only ZeroMQ.
// Throws Error(kUsage) if this user already runs a server with the same token.
std::unique_ptr<ServerLink> Listen(const std::string& endpoint, uint64_t job,
                                   config::Cluster::Transport transport,
                                   const LinkOptions& options);

// Connects, waiting up to `patience` for the server to appear. With AUTO and an endpoint on this
// host, uses the local link if the server can be reached through it; otherwise logs why not. Throws
// Error(kDeadline) if no server appears at an endpoint on this host, and Error(kUsage) for an
// endpoint that cannot work, such as a host name without an address.
std::unique_ptr<ClientLink> Connect(const std::string& endpoint, uint64_t job,
                                    config::Cluster::Transport transport,
                                    std::chrono::duration<double> patience,
                                    const LinkOptions& options);

// Whether a server or relay answers at this tcp:// endpoint within `limit`. A process of another
// kind, or one that is stopped, does not.
bool Answers(const std::string& endpoint, std::chrono::milliseconds limit);

}  // namespace muster
