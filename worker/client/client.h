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
//     for each lease of the order:
//       client.ReportLoss(step, lease, ...);      // b. each slice, before its gradients, and
//                                                 //    after all weights of the step arrived
//       ... client.GradientBuffer(lease.arena) ...
//       client.PushChunk(step, lease, c);         // c. each chunk
//   }
//
// What the server wants before all else (Redo, Fence) comes first from NextOrder. A program that
// can leave its forward pass waits with Wait::kForUrgent: AwaitChunk is then false when there is
// such an order. One that cannot is asked for nothing while it waits, and a job that loses another
// worker then ends by its deadline.
//
// Threads: one compute thread calls the public methods. What comes is handled by whichever thread
// receives it (channel.h), one at a time; what both know is under one lock. Every wait ends: with
// what was waited for, or with Error(kPeerFailed, kDeadline, kRefused) when the server is lost,
// silent, or has refused or stopped this worker; kOk from the constructor: it is not needed any
// more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/link/link.h"
#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "common/transport/transport.h"
#include "proto/wire.pb.h"
#include "worker/client/channel.h"
#include "worker/client/gradient_guard.h"
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

  const char* transport() const { return channel_->link().transport(); }  // for people
  uint32_t rank() const { return rank_; }
  const StepPlan& plan() const { return terms_.plan; }
  // What it begins with; a Train order says what it is to compute then.
  const WorkShare& first_share() const { return terms_.share; }
  const std::vector<ChunkRange>& chunks() const { return terms_.chunks; }
  // How gradients travel. A worker that adds gradients of slices itself rounds each of them, and
  // each sum, with RoundToWire and AddOnWire, so that it adds what the server would have added.
  // What it pushes is rounded by PushChunk.
  WireType wire_type() const { return terms_.wire_type; }

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
  // W(step) chunk c until PushChunk; of a Redo, which has an arena of its own, at once. All of it
  // must be written in each step: with a guard the chunk is marked when AwaitChunk says that it is
  // here, and looked through by PushChunk.
  std::span<float> GradientBuffer(size_t arena);
  // This one takes no memory until it is asked for again, unless every step uses it. For what was
  // needed for a Redo, once a later step has begun: all of that is at the server, or is not wanted.
  void GiveBackGradientBuffer(size_t arena) { tensors_->GiveBack(arena); }
  std::span<const float> Weights(int64_t version) const;
  // Of all versions and the average: whether they are mapped for reading alone, because the server
  // writes them.
  bool weights_are_read_only() const { return channel_->link().shares_memory(); }

  // False: the chunk is not here. kForUrgent: an urgent order is, instead. Fence ends either; until
  // that order is taken, what is reported and pushed goes nowhere.
  enum class Wait { kForChunk, kForUrgent };
  bool AwaitChunk(int64_t version, size_t chunk, Wait wait = Wait::kForChunk);

  // The moving average of W(version), for an evaluation that the server ordered on it. Every chunk
  // must be awaited before this worker goes on to train, even if it evaluates nothing: the server
  // takes the gradients of the next step as the sign that the average has arrived.
  std::span<const float> Average() const;
  bool AwaitAverage(int64_t version, size_t chunk, Wait wait = Wait::kForChunk);

  // After Fence and until the order that says so is taken, nothing of this is sent.
  void ReportLoss(int64_t step, const WorkLease& lease, int64_t slice, int64_t samples, double loss,
                  int64_t correct);
  void PushChunk(int64_t step, const WorkLease& lease, size_t chunk);
  // The subtree holds no samples in this step.
  void PushEmpty(int64_t step, const WorkLease& lease, size_t chunk);
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
  wire::WorkerMessage Hello(Attempt attempt) const;
  bool MayFallBack() const;

  using When = Channel::When;
  void Send(wire::WorkerMessage message, When when = When::kNow) {
    channel_->Send({.message = std::move(message)}, when);
  }
  wire::WorkerMessage NewMessage() const;
  // The gradient of a chunk, without its floats.
  wire::WorkerMessage PartMessage(int64_t step, const WorkLease& lease, size_t chunk) const;

  bool Await(int64_t version, size_t chunk, bool average, Wait wait);
  // With a guard: the gradients under way may be written from now on, each chunk once a version.
  void MarkUnwritten(int64_t version, size_t chunk);
  void MarkUnwritten(const Order& order);
  // With mutex_ locked.
  bool IsUrgent(Wait wait) const;
  Order TakeOrder();
  // Rethrows what ended the communication.
  void ThrowIfFailed() const;

  // Channel::Owner.
  void Handle(FromServer&& event) override;
  wire::WorkerMessage Heartbeat() override;
  void Fail(std::exception_ptr why) override;

  // Of the weights of this job, of which a run of no steps has one.
  bool IsVersion(int64_t version) const { return 0 <= version && version <= plan().total_steps; }
  // With mutex_ locked.
  void HandleMessage(FromServer& event, bool stored);
  // Whose a message is. kFormer: this worker's, before it was fenced.
  enum class Addressee { kMine, kFormer, kOther };
  Addressee AddresseeOf(const wire::Address& address) const;
  void HandleWelcome(FromServer& event);
  void HandleOrder(const wire::ServerMessage& message);
  void HandleAssignment(const wire::Assignment& assignment);
  void HandleTrain(const wire::Train& train);
  void HandleEvaluate(const wire::Evaluate& evaluate);
  void HandleRedo(const wire::Redo& redo);
  void HandleFence(const wire::Fence& fence);
  void MarkArrived(const wire::WeightsChunk& weights, bool stored);
  void HandleStop(const wire::Stop& stop);
  void SetError(Error error);
  // What the server would not send to a worker of its job.
  void SetMisfit(const google::protobuf::Message& message);
  // Puts weights where they belong. False: they are not what comes next.
  bool StoreWeights(const wire::WeightsChunk& weights, const Payload& payload);
  void CheckSilence();
  bool Welcomed() const;

  const ClientOptions options_;
  const uint64_t process_;
  // Given by the server.
  std::atomic<uint32_t> rank_ = 0, incarnation_ = 0;
  std::atomic<bool> leave_sent_ = false;
  std::atomic<bool> fenced_ = false;  // and the compute thread has not been told yet
  Terms terms_;
  std::unique_ptr<TensorStore> tensors_;  // before the channel, which sends from it

  mutable std::mutex mutex_;
  bool welcome_ = false;
  bool stopped_ = false;                           // the server said Stop
  std::deque<Order> orders_;                       // urgent ones first
  std::vector<size_t> marked_arenas_;              // with a guard: of the last order to train …
  std::map<size_t, std::vector<int64_t>> marked_;  // … arena → chunk → of which version
  WorkShare share_;                                // which Train orders follow
  Arrivals arrived_;
  std::exception_ptr error_;
  Clock::time_point last_heard_ = Clock::now();
  SuspensionDetector suspensions_{2 * Channel::kHeartbeatInterval};  // looked at with each beat

  std::unique_ptr<Channel> channel_;
};

}  // namespace muster
