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
//     for each part of the order:
//       client.ReportLoss(step, part, ...);       // b. each slice, before its gradients, and
//                                                 //    after all weights of the step arrived
//       ... client.GradientBuffer(part.buffer) ...
//       client.PushChunk(step, part, c);          // c. each chunk
//   }
//
// What the server wants before all else comes first from NextOrder: slices that somebody else was
// to compute, or that this worker begins anew (Reset). A program that
// can leave its forward pass waits with Wait::kForUrgent: AwaitChunk is then false when there is
// such an order. One that cannot is asked for nothing while it waits, and a job that loses another
// worker then ends by its deadline.
//
// Threads: one compute thread calls the public methods. What comes is handled by whichever thread
// receives it (channel.h), one at a time; what both know is under one lock. Every wait ends: with
// what was waited for, or with Error(kPeerFailed, kDeadline, kRefused) when the server is lost,
// silent, or has refused or stopped this worker. With kOk the worker is not needed any more, or the
// run is complete.
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
  std::optional<uint32_t> rank;  // none: any that is free
  // What the worker presents: the arena's layout, its data, its threads. rank, token, host and pid
  // are filled in by the client.
  wire::Hello hello;
  size_t arena_floats = 0;
  config::Cluster::Transport transport = config::Cluster::AUTO;
  LinkOptions link;
  // Where the link comes from; null: from endpoint and transport. For tests.
  std::function<std::unique_ptr<ClientLink>(const LinkOptions&)> connect = {};
  // How messages come and go; null: as the link wants it. For tests.
  std::function<std::unique_ptr<Channel>(Channel::Owner& owner)> make_channel = {};
  double start_s = 60;    // until Welcome
  double silence_s = 20;  // without a sign of life from the server
  // Catches gradients that are left unwritten; null: nobody looks.
  std::shared_ptr<const GradientGuard> guard;
  // Becomes true when this worker is to leave, which is looked at each second; null: it never does.
  const std::atomic<bool>* leave = nullptr;
};

class Client final : private Channel::Owner {
 public:
  using Clock = std::chrono::steady_clock;

  // Joins the job; returns after Welcome.
  explicit Client(ClientOptions options);
  // Says Goodbye if the server said Stop; otherwise just leaves.
  ~Client();
  Client(const Client&) = delete;

  // How messages travel, and where weights lie: with shares_memory() those of all versions, and the
  // average, are mapped for reading alone, because the server writes them.
  const ClientLink& link() const { return channel_->link(); }
  uint32_t rank() const { return session_.address().rank(); }
  // The terms of Welcome. A worker that adds gradients of slices itself rounds each of them, and
  // each sum, to terms().wire_type with RoundToWire and AddOnWire, so that it adds what the server
  // would have added. What it pushes is rounded by PushChunk.
  const Terms& terms() const { return session_.terms(); }
  const StepPlan& plan() const { return terms().plan; }
  const std::vector<ChunkRange>& chunks() const { return terms().chunks; }

  const std::shared_ptr<const GradientGuard>& guard() const { return options_.guard; }

  // `convolutions`: Backend::Convolutions, once everything is made that a step needs.
  void ReportReady(const std::string& convolutions = "");
  // This worker wants to go. It still does what it was ordered; then comes a Stop. Any thread, once
  // the client is there.
  void Leave();
  Order NextOrder();
  // One that is urgent, if there is one.
  std::optional<Order> NextUrgentOrder();

  // The memory of a gradient: the whole arena. Chunk c of it may be written from the arrival of
  // W(step) chunk c until PushChunk; for slices that were taken over, which have a buffer of their
  // own, at once. All of it must be written in each step: with a guard the chunk is marked when
  // AwaitChunk says that it is here, and looked through by PushChunk.
  std::span<float> GradientBuffer(size_t buffer) { return tensors_->GradientBuffer(buffer); }
  // This one takes no memory until it is asked for again, unless every step uses it. For what was
  // taken over, once a later step has begun: all of that is at the server, or is not wanted.
  void GiveBackGradientBuffer(size_t buffer) { tensors_->GiveBack(buffer); }
  std::span<const float> Weights(int64_t version) const;
  // The moving average of W(version), for an evaluation that the server ordered on it. Every chunk
  // must be awaited before this worker goes on to train, even if it evaluates nothing: the server
  // takes the gradients of the next step as the sign that the average has arrived.
  std::span<const float> Average() const;

  // False: the chunk is not here. kForUrgent: an urgent order is, instead. Reset ends either; until
  // that order is taken, what is reported and pushed goes nowhere.
  using Wait = Session::Wait;
  using Of = Session::Of;
  bool AwaitChunk(int64_t version, size_t chunk, Wait wait = Wait::kForChunk, Of of = Of::kWeights);

  // After Reset and until the order that says so is taken, nothing of this is sent.
  void ReportLoss(int64_t step, const OrderPart& part, int64_t slice, int64_t samples, double loss,
                  int64_t correct);
  void PushChunk(int64_t step, const OrderPart& part, size_t chunk);
  // The subtree holds no samples in this step.
  void PushEmpty(int64_t step, const OrderPart& part, size_t chunk);
  // False: nobody wants the others any more.
  bool ReportEvaluated(const wire::EvaluatedBlock& block);
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
  Session session_;                        // under the mutex, as session.h says
  std::unique_ptr<TensorStore> tensors_;   // before the channel, which sends from it
  std::optional<GuardedGradients> guard_;  // with options_.guard
  SuspensionDetector suspensions_{2 * Channel::kHeartbeatInterval};  // looked at with each beat
  std::unique_ptr<Channel> channel_;
};

}  // namespace muster
