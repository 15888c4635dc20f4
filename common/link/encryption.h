// Whether a job's TCP connections are encrypted: cluster.encryption, or, without it, the address.
#pragma once

#include <string>

#include "common/link/tcp_address.h"
#include "proto/config_fwd.h"

namespace muster {

// For a worker that connects to `endpoint`. Never for what stays on this host (ipc://, local://).
// Where the setting is not given: for all but the loopback interface. A name that has no address
// here may have one elsewhere, and counts as another host's.
bool IsEncrypted(const config::Cluster& cluster, const std::string& endpoint);

// For a server: if it listens on more than loopback, or its workers are told to connect to more.
bool IsEncrypted(const config::Cluster& cluster, const ListenAddress& address);

}  // namespace muster
