// The relay of a host: the workers of this host reach the server through it. They share memory with
// it as with a server on their own host. Over its one connection, each gradient goes to the server
// once for all of them (host_sums.h) and each chunk of weights comes once.
//
//   worker ◄── local link ──► relay ◄── ZeroMQ ──► server, or the relay of another host
//
// Relays of other hosts may connect to it instead of to the server. All other messages pass through
// unchanged, with the number of the worker (`via`), so the server sees each worker as if it were
// connected itself. The relay decides nothing. If it ends, all its workers are lost.
//
// One thread owns everything.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/base/fd.h"
#include "common/base/shared_memory.h"
#include "common/link/link.h"
#include "common/link/outbox.h"
#include "worker/relay/host_sums.h"

namespace muster {

class Relay {
 public:
  // `workers`: the link at which this host's workers and other relays connect. `server`: the
  // connection to the server or to another relay. `limit`: how long it waits for a worker when it
  // has none.
  Relay(std::unique_ptr<ServerLink> workers, std::unique_ptr<ClientLink> server,
        std::chrono::duration<double> limit);

  // Throws Error when the connection to the server has ended (kPeerFailed), or when no worker needs
  // this relay any more (kOk).
  [[noreturn]] void Run();

 private:
  using Clock = std::chrono::steady_clock;
  // A chunk of one of three weight buffers: even and odd versions, and averages.
  struct ChunkState {
    int64_t version = -1;  // the newest that has arrived
    // Workers that may use a version as soon as it has arrived.
    std::vector<wire::ServerMessage> waiting;
  };

  void Sleep();
  void FromTheServer(FromServer event);
  void FromAWorker(FromWorker event);
  void OnWelcome(const wire::ServerMessage& message);
  void OnWeights(const wire::ServerMessage& message, const Payload& payload);
  std::span<float> WeightsOf(const wire::WeightsChunk& weights);
  std::span<uint16_t> HalvesOf(std::span<const float> floats);
  void ToWorker(const wire::ServerMessage& message);
  void Round(Payload& payload) const;
  void Lose(uint32_t via);
  void Close(uint32_t via);
  void ToServer(wire::WorkerMessage message);
  void SendGradients(std::vector<RelayedGradient> gradients);
  void SendWaiting();

  const std::chrono::duration<double> limit_;
  Clock::time_point needed_at_ = Clock::now();
  const EventFd room_bell_;     // rung by the link's thread when more tensors may be sent
  std::set<uint32_t> workers_;  // those whose connections are open
  std::vector<uint64_t> chunk_end_;
  WireType type_ = wire::FP32;
  std::optional<SharedMemory> weights_;
  std::vector<uint16_t> halves_;  // the same, if the wire has 16 bits
  std::array<std::vector<ChunkState>, 3> chunks_;
  std::optional<HostSums> sums_;
  std::unique_ptr<ServerLink> local_;
  Outbox<RelayedGradient> outbox_;
  std::unique_ptr<ClientLink> server_;  // last: its thread uses the memory above
};

}  // namespace muster
