// A worker's side of the protocol: joins the job, receives weights and pushes gradients.
//
// This library does not depend on networks: it moves chunks of one parameter buffer, whose layout
// the caller describes. Trainer uses it for networks, ProgramTrainer for programs with their own
// model. A caller computes gradients of its slices and calls:
//
//   Client client(options);                       // a. Hello, Welcome
//   client.ReportReady();
//   for (;;) {
//     Order order = client.NextOrder();
//     if (order.kind == Order::Kind::kStop) break;
//     client.AwaitChunk(order.version, c);        // e. for each chunk, before it is read
//     ... client.Weights(order.version) ...
//     for each part of the order:
//       client.ReportLoss(step, part, ...);       // b. each slice, before its gradients, and
//                                                 //    after all weights of the step arrived
//       ... client.GradientBuffer(part.buffer) ...
//       client.PushChunk(step, part, c);          // c. each chunk
//   }
//
// NextOrder returns urgent orders first: slices taken over from another worker, or a Reset. A
// caller that can abandon its forward pass waits with Wait::kForUrgent: AwaitChunk then returns
// false if there is an urgent order. One that cannot do so receives no urgent orders while it
// waits; if another worker is lost during that time, the job ends by its deadline.
//
// Threads: one compute thread calls the public methods. The receiving thread (channel.h) handles
// messages one by one. One lock guards the shared state. Every wait ends: either successfully, or
// with Error(kPeerFailed, kDeadline, kRefused) if the server is lost, is silent, or has refused or
// stopped this worker. Error(kOk) means that the worker is no longer needed or that the run is
// complete.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/process.h"
#include "common/link/link.h"
#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "common/transport/transport.h"
#include "proto/wire.pb.h"
#include "worker/client/channel.h"
#include "worker/client/gradient_guard.h"
#include "worker/client/session.h"
#include "worker/client/tensor_store.h"
#include "worker/client/terms.h"

namespace muster {

struct ClientOptions {
  std::string endpoint;
  std::string token;
  std::optional<uint32_t> rank;  // empty: any free rank
  // What the worker presents: its parameter layout, data and threads. The client fills in rank,
  // token, host and pid.
  wire::Hello hello;
  size_t arena_floats = 0;
  // The initial weights of a program that trains its own model, laid out, until Welcome. The server
  // asks rank 0 for them.
  std::span<const float> initial = {};
  config::Cluster::Transport transport = config::Cluster::AUTO;
  LinkOptions link;
  // Replaces the link that endpoint and transport select. For tests.
  std::function<std::unique_ptr<ClientLink>(const LinkOptions&)> connect = {};
  // Replaces the channel that suits the link. For tests.
  std::function<std::unique_ptr<Channel>(Channel::Owner& owner)> make_channel = {};
  double start_s = 60;    // limit for Welcome
  double silence_s = 20;  // limit without any message from the server
  // Detects gradients that were not written. Null: no check.
  std::shared_ptr<const GradientGuard> guard;
  // Set to true when this worker should leave; checked every second. If null, it never leaves.
  const std::atomic<bool>* leave = nullptr;
};

// What only a program reports with the loss of a slice.
struct OfProgram {
  google::protobuf::RepeatedPtrField<wire::Scalar> scalars;
  std::optional<double> learning_rate, weight;
};

class Client final : private Channel::Owner {
 public:
  using Clock = std::chrono::steady_clock;

  // Joins the job; returns after Welcome.
  explicit Client(ClientOptions options);
  // Sends Goodbye if the server sent Stop.
  ~Client();
  Client(const Client&) = delete;

  // With link().shares_memory(), the weights of all versions and the average are mapped read-only,
  // because the server writes them.
  const ClientLink& link() const { return channel_->link(); }
  uint32_t rank() const { return session_.address().rank(); }
  // The terms of Welcome. A worker that adds gradients of slices itself must round each of them,
  // and each sum, to terms().wire_type with RoundToWire and AddOnWire, to get the same bits as the
  // server. PushChunk rounds what it sends.
  const Terms& terms() const { return session_.terms(); }
  const StepPlan& plan() const { return terms().plan; }
  const std::vector<ChunkRange>& chunks() const { return terms().chunks; }

  const std::shared_ptr<const GradientGuard>& guard() const { return options_.guard; }

  // Reports that everything a step needs has been made. `convolutions` is Backend::Convolutions.
  void ReportReady(const std::string& convolutions = "");
  // Makes this worker leave, as if options.leave were true: the next heartbeat says so, and repeats
  // it after a Reset. The worker still completes its orders; then a Stop arrives. May be called on
  // any thread.
  void Leave();
  Order NextOrder();
  // Returns the next order if it is urgent. If a Reset was sent before something that the caller
  // has seen in shared memory, returns that Reset.
  std::optional<Order> NextUrgentOrder();

  // A buffer for the gradient of all parameters. Chunk c may be written from the arrival of chunk c
  // of W(step) until PushChunk. A buffer for slices that were taken over is separate and may be
  // written immediately. Every step must write the whole buffer. With a guard, AwaitChunk marks the
  // arrived chunk as unwritten and PushChunk checks it.
  std::span<float> GradientBuffer(size_t buffer) { return tensors_->GradientBuffer(buffer); }
  // Releases the buffer's memory until its next use, unless every step uses it. Called for slices
  // that were taken over, after a later step has begun: by then the server has their gradients or
  // no longer wants them.
  void GiveBackGradientBuffer(size_t buffer) { tensors_->GiveBack(buffer); }
  std::span<const float> Weights(int64_t version) const;
  // The moving average of W(version), for its evaluation. Every chunk must be awaited before this
  // worker resumes training, even if it evaluates nothing: the server takes gradients of the next
  // step as the sign that the average has arrived.
  std::span<const float> Average() const;

  // Returns false if an urgent order (with kForUrgent) or a Reset arrived instead of the chunk.
  // Until the Reset order is taken, reports and pushes are dropped.
  using Wait = Session::Wait;
  using Of = Session::Of;
  bool AwaitChunk(int64_t version, size_t chunk, Wait wait = Wait::kForChunk, Of of = Of::kWeights);

  // The following send nothing between a Reset and the moment its order is taken.
  void ReportLoss(int64_t step, const OrderPart& part, int64_t slice, int64_t samples, double loss,
                  int64_t correct, const OfProgram& program = {});
  // `in_gpu`: the chunk is complete in the memory of ShareGpuBuffer, and GradientBuffer lacks it.
  void PushChunk(int64_t step, const OrderPart& part, size_t chunk, bool in_gpu = false);
  // With terms().adds_in_gpus: tells the relay where this gradient buffer is in the GPU's memory
  // (Backend::Export), which must stay there. Called before the buffer's first PushChunk.
  void ShareGpuBuffer(size_t buffer, const std::string& handle);
  // Reports that the subtree holds no samples in this step.
  void PushEmpty(int64_t step, const OrderPart& part, size_t chunk);
  // Returns false if the remaining blocks are no longer wanted.
  bool ReportEvaluated(const wire::EvaluatedBlock& block);
  void ReportTimes(const wire::StepTimes& times);

  // Named values, also after a completed run's Stop. One Ask at a time: AwaitAnswer returns its
  // answer, or nothing when `patience` is over. Throws Error if none can come.
  void Ask(const std::string& key, int64_t step, bool may_compute);
  std::optional<wire::Answer> AwaitAnswer(std::chrono::milliseconds patience);
  void Tell(const std::string& key, int64_t step, const std::string& value);

  // The time at which the latest message was handed to the transport. For statistics.
  Clock::time_point HandedOverAt() const { return channel_->HandedOverAt(); }

  // Reports to the server why this worker fails, and waits briefly for the message to be sent.
  void ReportFailure(const std::string& message, ExitCode code);

 private:
  enum class Attempt { kFirst, kInsteadOfLocal };
  // Connects, sends Hello, and waits for Welcome.
  void Join(Attempt attempt);

  using When = Channel::When;
  void Send(wire::WorkerMessage message, When when = When::kNow) {
    channel_->Send({.message = std::move(message)}, when);
  }
  wire::WorkerMessage NewMessage() const;

  // Channel::Owner.
  void Handle(FromServer&& event) override;
  wire::WorkerMessage Heartbeat() override;
  void Fail(std::exception_ptr why) override;

  const ClientOptions options_;
  const uint64_t process_;
  mutable std::mutex mutex_;
  Session session_;                        // guarded by mutex_ (see session.h)
  std::unique_ptr<TensorStore> tensors_;   // declared before the channel, which sends from it
  std::optional<GuardedGradients> guard_;  // only with options_.guard
  std::atomic<bool> wants_to_leave_{false};
  std::optional<wire::InitialWanted> initial_wanted_;                // guarded by mutex_
  SuspensionDetector suspensions_{2 * Channel::kHeartbeatInterval};  // checked with each heartbeat
  std::unique_ptr<Channel> channel_;
};

}  // namespace muster
