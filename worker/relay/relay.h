// The relay of a host: the workers of this host reach the server through it. They share memory with
// it as with a server on their own host. Over its one connection, each gradient goes to the server
// once for all of them (host_sums.h) and each chunk of weights comes once.
//
//   worker ◄── local link ──► relay ◄── ZeroMQ ──► server, or the relay of another host
//
// On the server's host, where it is used if GPUs add the gradients (gpu_gradients.h), it also
// shares memory with the server. Its workers read the server's weights.
//
// Relays of other hosts may connect to it instead of to the server. All other messages pass through
// unchanged, with the number of the worker (`via`), so the server sees each worker as if it were
// connected itself. The relay decides nothing, but drops gradients that their senders may not send
// (gradient_check.h). If it ends, all its workers are lost.
//
// One thread owns everything.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/shared_memory.h"
#include "common/link/link.h"
#include "common/link/outbox.h"
#include "common/plan/step_plan.h"
#include "worker/relay/gradient_places.h"
#include "worker/relay/host_sums.h"

namespace muster {

class Relay {
 public:
  struct Limits {
    std::chrono::duration<double> without_workers;  // how long it waits for one
    std::chrono::duration<double> silence;          // of the server
  };
  // `workers`: the link at which this host's workers and other relays connect. `server`: the
  // connection to the server or to another relay. `adder`: null unless GPUs add gradients.
  Relay(std::unique_ptr<ServerLink> workers, std::unique_ptr<ClientLink> server, Limits limits,
        std::unique_ptr<GpuAdder> adder = nullptr);

  // Throws Error when the connection to the server has ended (kPeerFailed) or the server is silent
  // (kDeadline), or when no worker needs this relay any more (kOk).
  [[noreturn]] void Run();

 private:
  using Clock = std::chrono::steady_clock;

  void Sleep();
  void FromTheServer(FromServer event);
  void FromAWorker(FromWorker event);
  void OnWelcome(FromServer& event);
  void UseGpus(const wire::Welcome& welcome);
  void OnWeights(const wire::ServerMessage& message, const Payload& payload);
  std::span<float> WeightsOf(const wire::WeightsChunk& weights);
  std::span<uint16_t> HalvesOf(std::span<const float> floats);
  void ToWorker(const wire::ServerMessage& message);
  void Round(Payload& payload) const;
  // Returns why a gradient does not fit, or "".
  std::string Check(const FromWorker& event) const;
  std::string CheckValues(const FromWorker& event) const;
  void Lose(uint32_t via);
  void Close(uint32_t via);
  void ToServer(wire::WorkerMessage message);
  void SendGradients(std::vector<RelayedGradient> gradients);
  void SendWaiting();
  bool IsNeeded() const;
  void CheckLimits();

  const Limits limits_;
  Clock::time_point needed_at_ = Clock::now(), checked_at_ = needed_at_;
  std::optional<Clock::time_point> heard_at_;  // when the last message of the server came
  SuspensionDetector suspensions_{std::chrono::seconds(1)};
  RareLine refused_, dropped_;
  const EventFd room_bell_;  // rung by the link's thread when more tensors may be sent
  struct Worker {
    bool has_finished = false;             // has said Goodbye
    std::optional<wire::Address> address;  // since Welcome
  };
  std::map<uint32_t, Worker> workers_;  // with open connections
  StepPlan plan_;
  std::vector<uint64_t> chunk_end_;
  WireType type_ = wire::FP32;
  std::optional<SharedMemory> weights_;
  std::optional<GradientPlaces> places_;  // if the server shares memory
  std::vector<uint16_t> halves_;          // the same, if the wire has 16 bits
  // The newest version of each chunk in three weight buffers: even and odd versions, and averages.
  std::array<std::vector<int64_t>, 3> arrived_;
  std::unique_ptr<GpuAdder> adder_;   // until Welcome
  std::optional<GpuGradients> gpus_;  // if there is an adder
  std::optional<HostSums> sums_;
  std::unique_ptr<ServerLink> local_;
  Outbox<RelayedGradient> outbox_;
  std::unique_ptr<ClientLink> server_;  // last: its thread uses the memory above
};

}  // namespace muster
