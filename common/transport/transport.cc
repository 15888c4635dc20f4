#include "common/transport/transport.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <thread>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/link/secret.h"
#include "common/link/tcp_address.h"
#include "common/transport/combined_server_link.h"
#include "common/transport/local/local_link.h"
#include "common/transport/relayed_server_link.h"
#include "common/transport/zmq/zmq_greeting.h"
#include "common/transport/zmq/zmq_link.h"

namespace muster {
namespace {

using std::chrono::steady_clock;

// Connects to the local link. Retries until the server appears.
std::unique_ptr<ClientLink> AwaitLocal(const std::string& endpoint,
                                       std::chrono::duration<double> patience,
                                       const LinkOptions& options) {
  const auto deadline = steady_clock::now() + patience;
  for (;;) {
    try {
      return ConnectLocal(endpoint, options);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kPeerFailed || steady_clock::now() >= deadline) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Whether a server listens at an endpoint of this host.
bool Answers(const std::string& endpoint) {
  if (IsTcp(endpoint)) return ResolvedAddress(TcpAddress::Parse(endpoint)).Answers();
  const std::string name = endpoint.substr(std::string_view("ipc://").size());
  sockaddr_un address{};
  if (name.empty() || name.size() >= sizeof address.sun_path) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  if (name[0] == '@') address.sun_path[0] = 0;
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd.valid() &&
         ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                   offsetof(sockaddr_un, sun_path) + static_cast<socklen_t>(name.size())) == 0;
}

bool IsOnThisHost(const std::string& endpoint) {
  return endpoint.starts_with("ipc://") ||
         (IsTcp(endpoint) && ResolvedAddress(TcpAddress::Parse(endpoint)).of_this_host());
}

// Returns the local link to the server at `endpoint`. Worker and server may start in any order.
// Returns null, with a log line, if the server is reachable but its local link is not.
std::unique_ptr<ClientLink> AwaitServerOfThisHost(const std::string& endpoint, uint64_t job,
                                                  std::chrono::duration<double> patience,
                                                  const LinkOptions& options) {
  const auto deadline = steady_clock::now() + patience;
  for (;;) {
    // The order matters: a server opens its local link before it answers at its endpoint.
    const bool is_there = Answers(endpoint);
    try {
      return ConnectLocal(LocalEndpoint(job), options);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kPeerFailed) throw;
      if (is_there) {
        // Usually the server's config, which may differ from the worker's, rules out the local
        // link. A wrong token also has this effect, because the name of the local link is derived
        // from it.
        LogInfo(
            "falling back to ZeroMQ: the server shares no memory with this process. Its "
            "cluster.wire_dtype is not FP32, its cluster.transport is not AUTO, its token differs "
            "from this worker's, or its log gives the reason ({})",
            error.what());
        return nullptr;
      }
    }
    if (steady_clock::now() >= deadline) {
      throw Error(
          ExitCode::kDeadline,
          "no server listens at {} within {:g} s (deadlines.start_s): check that the server "
          "is running and that this is the endpoint it printed",
          endpoint, patience.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void CheckTransport(const std::string& endpoint, config::Cluster::Transport transport) {
  if (transport != config::Cluster::LOCAL || endpoint.starts_with("local://")) return;
  throw Error(
      ExitCode::kUsage,
      "{}: cluster.transport is LOCAL, expected an endpoint local://@NAME (`muster server` "
      "without --endpoint chooses one); with AUTO, workers on the server's host share memory at "
      "any endpoint",
      endpoint);
}

// Replaces a * by a name that nobody can have taken, because it is chosen only now. (The command
// lines of all processes can be read by other users, too.)
std::string Named(const std::string& endpoint) {
  if (IsTcp(endpoint) || !endpoint.ends_with("://@*")) return endpoint;
  return endpoint.substr(0, endpoint.size() - 1) + "muster-" + RandomDigits();
}

// Refuses to start a second server with the same token, because workers could join the wrong job.
void CheckAlone(const std::string& local_endpoint, const LinkOptions& options) {
  try {
    (void)ConnectLocal(local_endpoint, options);
  } catch (const Error&) {
    return;  // there is no other server, or it belongs to another user
  }
  throw Error(ExitCode::kUsage,
              "another server on this host has the same token: every job needs its own token "
              "(`muster token FILE` creates one)");
}

}  // namespace

bool Answers(const std::string& endpoint, std::chrono::milliseconds limit) {
  return !MechanismOf(ResolvedAddress(TcpAddress::Parse(endpoint)).ToEndpoint(), limit).empty();
}

std::unique_ptr<ServerLink> Listen(const std::string& listen_at, uint64_t job,
                                   config::Cluster::Transport transport,
                                   const LinkOptions& options) {
  const std::string endpoint = Named(listen_at);
  CheckTransport(endpoint, transport);
  if (endpoint.starts_with("local://")) return ListenLocal(endpoint, options);
  std::unique_ptr<ServerLink> local;  // opened first: see AwaitServerOfThisHost
  if (transport == config::Cluster::AUTO && options.share_memory) {
    try {
      local = WithRelays(ListenLocal(LocalEndpoint(job), options));
    } catch (const Error& error) {
      CheckAlone(LocalEndpoint(job), options);
      LogWarning(
          "falling back to ZeroMQ for workers on this host: shared memory is unavailable: {}",
          error.what());
    }
  }
  std::unique_ptr<ServerLink> zmq = WithRelays(ListenZmq(endpoint, options));
  return local ? Combine(std::move(local), std::move(zmq)) : std::move(zmq);
}

std::unique_ptr<ClientLink> Connect(const std::string& endpoint, uint64_t job,
                                    config::Cluster::Transport transport,
                                    std::chrono::duration<double> patience,
                                    const LinkOptions& options) {
  CheckTransport(endpoint, transport);
  CheckConnectable(endpoint);
  if (endpoint.starts_with("local://")) return AwaitLocal(endpoint, patience, options);
  if (transport == config::Cluster::AUTO && options.share_memory && IsOnThisHost(endpoint)) {
    if (auto local = AwaitServerOfThisHost(endpoint, job, patience, options)) return local;
  }
  return ConnectZmq(endpoint, options);
}

}  // namespace muster
