// Opens a link: which transport a job uses, cluster.transport and the endpoint decide.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "common/link/link.h"
#include "proto/config.pb.h"

namespace muster {

// The transports of cluster.transport, by the form of `endpoint`: ipc://@NAME (abstract namespace),
// tcp://HOST:PORT (tcp_address.h), local://@NAME. Throws Error(kFailure) if it cannot be bound, and
// Error(kUsage) for one that is malformed or contradicts `transport`. With AUTO the server listens
// on the local link of the job as well; where that cannot be, one line in the log says why, but a
// second server of this user with the job's token is Error(kUsage).
std::unique_ptr<ServerLink> Listen(const std::string& endpoint, uint64_t job,
                                   config::Cluster::Transport transport,
                                   const LinkOptions& options);

// Connects; the server may appear later, for as long as `patience`. With AUTO and an endpoint of
// this host the local link is used if the server can be reached by it, and otherwise one line in
// the log says why not. Throws Error(kDeadline) if nobody appears at an endpoint of this host, and
// Error(kUsage) for an endpoint that cannot be one, such as a name without an address.
std::unique_ptr<ClientLink> Connect(const std::string& endpoint, uint64_t job,
                                    config::Cluster::Transport transport,
                                    std::chrono::duration<double> patience,
                                    const LinkOptions& options);

}  // namespace muster
