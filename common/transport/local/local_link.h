// The local link: processes of one user on one host share memory. A step copies no tensors, and no
// message goes through the kernel while all processes are awake.
//
// The server listens on an AF_UNIX SOCK_SEQPACKET socket in the abstract namespace, named after the
// job. With Welcome, it passes four descriptors to the worker: the weight buffers, sealed so that
// the worker can only read them; the gradient buffers of this connection, which the server can only
// read; and message memory for each direction (message_ring.h). The socket stays open for
// doorbells, which wake a sleeping side, and its end of file signals the loss of the peer. Nothing
// has a name in a file system, and everything disappears when the processes end.
//
//   worker's process                          server's process
//   gradient buffer  (read, write) ───────►  gradient buffer  (read)         one per connection
//   messages         (read, write) ───────►  messages         (read)         one per connection
//   messages         (read)        ◄───────  messages         (read, write)  one per connection
//   weight buffers   (read)        ◄───────  weight buffers   (read, write)  one for all
//   socket           ◄──────── Hello, Welcome, doorbells ────────►  socket
#pragma once

#include <memory>
#include <string>

#include "common/link/link.h"

namespace muster {

// Returns the local://@NAME at which the server of a job listens. The name is derived from the
// token.
std::string LocalEndpoint(uint64_t job);

// If another user has taken the name, both use one that stands in for it (StandInsFor).
//
// Throws Error(kFailure) if this user listens there already, or if the kernel cannot seal memory
// against writers.
std::unique_ptr<ServerLink> ListenLocal(const std::string& endpoint, const LinkOptions& options);

// Throws Error(kPeerFailed) at once if no process listens there, or if another user's process does.
std::unique_ptr<ClientLink> ConnectLocal(const std::string& endpoint, const LinkOptions& options);

}  // namespace muster
