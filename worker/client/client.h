// A worker's side of the job: join, gradient buffer, push chunk, await chunk.
//
// This library knows nothing of networks: it moves chunks of one arena of floats, whose layout the
// caller describes. A program that trains its own model links it, computes gradients of its slices
// and calls:
//
//   Client client(options);                       // a. Hello … Welcome
//   client.ReportReady();
//   for (;;) {
//     Order order = client.NextOrder();
//     if (order.kind == Order::Kind::kStop) break;
//     client.AwaitChunk(order.version, c);        // e. for each chunk, before it is read
//     ... client.Weights(order.version) ...
//     client.ReportLoss(...);                     // b. each slice, before its gradients, and
//                                                 //    after all weights of the step arrived
//     ... client.GradientBuffer(p) ...
//     client.PushChunk(order.version, p, c);      // c. each part, each chunk
//   }
//
// Threads: one compute thread calls the public methods. What comes is handled by whichever thread
// receives it (channel.h), one at a time; what both know is under one lock. Every wait ends: with
// what was waited for, or with Error(kPeerFailed, kDeadline, kRefused) when the server is lost,
// silent, or has refused or stopped this worker.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/own_gap.h"
#include "common/link/link.h"
#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "common/transport/transport.h"
#include "proto/wire.pb.h"
#include "worker/client/arrivals.h"
#include "worker/client/channel.h"
#include "worker/client/tensor_store.h"
#include "worker/client/terms.h"

namespace muster {

struct ClientOptions {
  std::string endpoint;
  std::string token;
  uint32_t rank = 0;
  uint32_t incarnation = 0;
  // What the worker presents: the arena's layout, its data, its threads. rank, token, host and pid
  // are filled in by the client.
  wire::Hello hello;
  size_t arena_floats = 0;
  config::Cluster::Transport transport = config::Cluster::AUTO;
  LinkOptions link;
  double start_s = 60;    // until Welcome
  double silence_s = 20;  // without a sign of life from the server
};

// What the server wants next.
struct Order {
  enum class Kind { kTrain, kEvaluate, kStop };
  Kind kind;
  int64_t version = 0;       // use W(version); the step to train, too
  int64_t samples = 0;       // kTrain: of the whole batch
  int64_t block_size = 0;    // kEvaluate
  Range blocks;              // kEvaluate: of this worker
  bool average = false;      // kEvaluate: on the moving average of W(version)
  bool predictions = false;  // kEvaluate: report label and prediction of each sample
  uint32_t images = 0;       // kEvaluate: send so many samples with block 0
  bool completed = false;    // kStop: the run reached its end
  std::string reason;        // kStop
};

class Client final : private Channel::Owner {
 public:
  using Clock = std::chrono::steady_clock;

  // Joins the job; returns after Welcome.
  explicit Client(ClientOptions options);
  // Says Goodbye if the server said Stop; otherwise just leaves.
  ~Client();
  Client(const Client&) = delete;

  const char* transport() const { return channel_->link().transport(); }  // for people
  const StepPlan& plan() const { return terms_.plan; }
  int64_t first_step() const { return terms_.first_step; }
  Range slices() const { return terms_.slices; }                       // of this worker
  const std::vector<TreeNode>& parts() const { return terms_.parts; }  // what it pushes per chunk
  const std::vector<ChunkRange>& chunks() const { return terms_.chunks; }
  // How gradients travel. A worker that adds gradients of slices itself rounds each of them, and
  // each sum, with RoundToWire and AddOnWire, so that it adds what the server would have added.
  // What it pushes is rounded by PushChunk.
  WireType wire_type() const { return terms_.wire_type; }

  void ReportReady();
  Order NextOrder();

  // The memory of the gradient of parts()[part]: the whole arena. Chunk c of it may be written
  // from the arrival of W(step) chunk c until PushChunk.
  std::span<float> GradientBuffer(size_t part);
  std::span<const float> Weights(int64_t version) const;

  void AwaitChunk(int64_t version, size_t chunk);

  // The moving average of W(version), for an evaluation that the server ordered on it. Every chunk
  // must be awaited before this worker goes on to train, even if it evaluates nothing: the server
  // takes the gradients of the next step as the sign that the average has arrived.
  std::span<const float> Average() const;
  void AwaitAverage(int64_t version, size_t chunk);

  void ReportLoss(int64_t step, int64_t slice, int64_t samples, double loss, int64_t correct);
  void PushChunk(int64_t step, size_t part, size_t chunk);
  // The subtree holds no samples in this step.
  void PushEmpty(int64_t step, size_t part);
  void ReportEvaluated(const wire::EvaluatedBlock& block);
  void ReportTimes(const wire::StepTimes& times);

  // When the last message so far was handed to the transport. For statistics.
  Clock::time_point HandedOverAt() const { return channel_->HandedOverAt(); }

  // Tells the server why this worker gives up, and waits a moment until that has left.
  void ReportFailure(const std::string& message, ExitCode code);

 private:
  // How this worker joins, and whether it has said Hello before.
  enum class Attempt { kFirst, kInsteadOfLocal };
  // Connects, says Hello, waits for Welcome.
  void Join(Attempt attempt);
  wire::WorkerMessage Hello(Attempt attempt) const;
  bool MayFallBack() const;

  using When = Channel::When;
  void Send(wire::WorkerMessage message, When when = When::kNow) {
    channel_->Send({.message = std::move(message)}, when);
  }
  wire::WorkerMessage NewMessage() const;
  // The gradient of a chunk of parts()[part], without its floats.
  wire::WorkerMessage PartMessage(int64_t step, size_t part, size_t chunk) const;

  void Await(int64_t version, size_t chunk, bool average);
  // Rethrows what ended the communication.
  void ThrowIfFailed() const;

  // Channel::Owner.
  void Handle(FromServer&& event) override;
  wire::WorkerMessage Heartbeat() override;
  void Fail(std::exception_ptr why) override;

  // With mutex_ locked.
  void HandleMessage(FromServer& event, bool stored);
  void HandleWelcome(FromServer& event);
  void MarkArrived(const wire::WeightsChunk& weights, bool stored, size_t bytes);
  void HandleStop(const wire::Stop& stop);
  void SetError(Error error);
  // Puts weights where they belong. False: they are not what comes next.
  bool StoreWeights(const wire::WeightsChunk& weights, const Payload& payload);
  void CheckSilence();

  const ClientOptions options_;
  Terms terms_;
  std::unique_ptr<TensorStore> tensors_;  // before the channel, which sends from it

  mutable std::mutex mutex_;
  bool welcome_ = false;
  bool stopped_ = false;  // the server said Stop
  std::deque<Order> orders_;
  Arrivals arrived_;
  std::exception_ptr error_;
  Clock::time_point last_heard_ = Clock::now();
  OwnGap own_gap_{2 * Channel::kHeartbeatInterval};  // looked at with each beat

  std::unique_ptr<Channel> channel_;
};

}  // namespace muster
