// The links of server and relays and the workers' channels, with delays. Messages of one connection
// and direction keep their order, as over a socket; those of different connections do not. Tensors
// are in shared memory, or are sent over a network. In the latter case they are queued by urgency
// and read when their turn comes, and messages without a tensor overtake them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/link/link.h"
#include "common/transport/local/gradient_memory.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/wire.h"
#include "worker/client/channel.h"

namespace muster::testing {

class SimulatedServerLink;

// The end of a connection that a worker or a relay has made.
class Receiver {
 public:
  virtual void Arrive(FromServer event) = 0;

 protected:
  ~Receiver() = default;
};

struct Connection {
  PeerId peer;
  SimulatedProcess& worker;  // or a relay
  const bool shares_memory;
  Wire to_server, to_worker;
  SimulatedServerLink* end;      // of the server or a relay; null after it has ended
  Receiver* receiver = nullptr;  // null if the worker has closed it
  std::optional<GradientMemory> gradients;
  bool memory_is_due = false;  // is sent with the next message
};

class Network {
 public:
  struct Observer {
    // Called when the server sends a message, and when a message arrives at the server.
    std::function<void(const Connection&, const wire::ServerMessage&, std::span<const std::byte>)>
        sent;
    std::function<void(const Connection&, const wire::WorkerMessage&)> received;
    // Called when the server waits for input.
    std::function<void()> idle;
  };
  Network(Scheduler& scheduler, Chance& chance, Observer observer)
      : scheduler_(scheduler), chance_(chance), observer_(std::move(observer)) {}

  // Hosts have network cards of this speed. Each process must be placed on one before it connects.
  void LimitRate(double bytes_per_second, size_t hosts) {
    bytes_per_second_ = bytes_per_second;
    ports_.resize(hosts);
  }
  void Place(const SimulatedProcess& process, size_t host) { host_of_[&process] = host; }

  // Called by the server's process. All connections of the previous server must have ended.
  std::unique_ptr<ServerLink> Listen(SimulatedProcess& server);
  // Called by a relay's process.
  std::unique_ptr<ServerLink> ListenAsRelay(SimulatedProcess& relay);
  bool Listens(const SimulatedProcess& process) const { return LinkOf(&process) != nullptr; }
  // Called by a worker's process. `to`: a relay's; null: the server.
  std::unique_ptr<Channel> Connect(SimulatedProcess& worker, bool shares_memory,
                                   Channel::Owner& owner, const SimulatedProcess* to = nullptr);
  // Called by a relay's process. Throws Error(kPeerFailed) if nobody listens.
  std::unique_ptr<ClientLink> ConnectRelay(SimulatedProcess& relay, const SimulatedProcess* to);

  // The newest connection of a process, or null.
  Connection* ConnectionOf(const SimulatedProcess& worker) const;
  // Drops the unsent data of a process that is about to be killed. `noticed`: the server sees the
  // end of the connection; otherwise it only sees silence.
  void Abandon(SimulatedProcess& worker, bool noticed);
  void AbandonServer();

 private:
  friend class SimulatedChannel;
  friend class SimulatedClientLink;
  friend class SimulatedServerLink;
  void Close(Connection& connection);
  void End(SimulatedServerLink& link);
  SimulatedServerLink* LinkOf(const SimulatedProcess* process) const;
  Connection& Add(SimulatedProcess& process, bool shares_memory, SimulatedServerLink* end);

  Scheduler& scheduler_;
  Chance& chance_;
  const Observer observer_;
  std::deque<std::unique_ptr<Connection>> connections_;
  std::vector<SimulatedServerLink*> links_;  // that are open
  SimulatedServerLink* server_ = nullptr;    // one of them; null if there is none
  PeerId next_peer_ = 1;
  double bytes_per_second_ = 0;  // 0: transfers take random times
  std::vector<Port> ports_;      // of each host
  std::map<const SimulatedProcess*, size_t> host_of_;
};

}  // namespace muster::testing
