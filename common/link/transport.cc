// Which link a job uses: cluster.transport and the endpoint decide.
#include <thread>

#include "common/error.h"
#include "common/link/combined_server_link.h"
#include "common/link/link.h"
#include "common/link/local_link.h"
#include "common/link/zmq_link.h"
#include "common/log.h"

namespace muster {
namespace {

using std::chrono::steady_clock;

// A server at such an address runs on this host.
bool IsOnThisHost(const std::string& endpoint) {
  return endpoint.starts_with("local://") || endpoint.starts_with("ipc://") ||
         endpoint.starts_with("tcp://127.");
}

// The server may appear later.
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

}  // namespace

std::unique_ptr<ServerLink> Listen(const std::string& endpoint, uint64_t job,
                                   config::Cluster::Transport transport,
                                   const LinkOptions& options) {
  if (endpoint.starts_with("local://")) return ListenLocal(endpoint, options);
  std::unique_ptr<ServerLink> zmq = ListenZmq(endpoint, options);
  if (transport != config::Cluster::AUTO) return zmq;
  std::unique_ptr<ServerLink> local;
  try {
    local = ListenLocal(LocalEndpoint(job), options);
  } catch (const Error& error) {
    spdlog::warn("no shared memory for workers of this host, ZeroMQ for all: {}", error.what());
    return zmq;
  }
  return Combine(std::move(local), std::move(zmq));
}

std::unique_ptr<ClientLink> Connect(const std::string& endpoint, uint64_t job,
                                    config::Cluster::Transport transport,
                                    std::chrono::duration<double> patience,
                                    const LinkOptions& options) {
  if (endpoint.starts_with("local://")) return AwaitLocal(endpoint, patience, options);
  if (transport == config::Cluster::AUTO) {
    // A server of another host will never be there: no use in waiting for it.
    constexpr std::chrono::seconds kLocalPatience{5};
    try {
      return AwaitLocal(LocalEndpoint(job),
                        IsOnThisHost(endpoint)
                            ? std::min<std::chrono::duration<double>>(patience, kLocalPatience)
                            : std::chrono::duration<double>::zero(),
                        options);
    } catch (const Error& error) {
      spdlog::warn("no shared memory with the server, ZeroMQ instead: {}", error.what());
    }
  }
  return ConnectZmq(endpoint, options);
}

}  // namespace muster
