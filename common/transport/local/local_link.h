// The local link: processes of one host and one user share memory. A step moves no tensor, and
// while everybody is awake no message through the kernel.
//
// The server listens on an AF_UNIX SOCK_SEQPACKET socket in the abstract namespace, named after
// the job. With Welcome it hands a worker four descriptors: the weight buffers, which are sealed so
// that the worker can only read them; a gradient buffer made for this connection, which the server
// can only read; and the same of either kind for messages (message_ring.h). The socket stays for
// doorbells, which wake a side that sleeps, and its end of file is the loss of the peer. Nothing
// has a name in a file system and all of it goes with the processes.
//
//   worker's process                          server's process
//   gradient buffer     (read, write) ───────────────►  gradient buffer     (read)        one per
//   connection messages (read, write) ───────────────►  messages (read)        one per connection
//   messages (read)        ◄───────────────  messages (read, write) one per connection
//   weight buffers   (read)        ◄───────────────  weight buffers   (read, write) one for all
//   socket   ◄──────── Hello, Welcome, doorbells ────────►  socket
#pragma once

#include <memory>
#include <string>

#include "common/link/link.h"

namespace muster {

// local://@NAME: where the server of a job listens, a function of the job's token.
std::string LocalEndpoint(uint64_t job);

// Throws Error(kFailure) if the name cannot be bound, because another process has it, and if the
// kernel cannot seal memory against writers.
std::unique_ptr<ServerLink> ListenLocal(const std::string& endpoint, const LinkOptions& options);

// Throws Error(kPeerFailed) at once if nobody listens there, and if it is another user who does.
std::unique_ptr<ClientLink> ConnectLocal(const std::string& endpoint, const LinkOptions& options);

}  // namespace muster
