// A worker's side of the job: join, slot, push chunk, await chunk.
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
//     ... client.Slot(p) ...
//     client.PushChunk(order.version, p, c);      // c. each part, each chunk
//   }
//
// Threads: one compute thread calls the public methods. Over ZeroMQ a communication thread inside
// owns the socket, and the compute thread's calls go through a queue. Over the local link, whose
// messages are short notices, the compute thread sends and receives them itself: nothing is handed
// from thread to thread; the communication thread sends beats, and while the compute thread
// computes it looks once a second for what has come. Every wait ends: with what was waited for, or
// with Error(kPeerFailed, kDeadline, kRefused) when the server is lost, silent, or has refused or
// stopped this worker.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/adaptive_spin.h"
#include "common/base/error.h"
#include "common/base/event_fd.h"
#include "common/base/own_gap.h"
#include "common/link/link.h"
#include "common/link/send_window.h"
#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "common/transport/transport.h"
#include "proto/wire.pb.h"
#include "worker/client/wire_buffers.h"

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
  bool completed = false;    // kStop: the run reached its end
  std::string reason;        // kStop
};

// A range of floats of the arena.
struct ChunkRange {
  size_t begin = 0, end = 0;
};

class Client {
 public:
  using Clock = std::chrono::steady_clock;

  // Joins the job; returns after Welcome.
  explicit Client(ClientOptions options);
  // Says Goodbye if the server said Stop; otherwise just leaves.
  ~Client();
  Client(const Client&) = delete;

  const char* transport() const { return link_->transport(); }  // for people
  const StepPlan& plan() const { return plan_; }
  int64_t first_step() const { return first_step_; }
  Range slices() const { return slices_; }                       // of this worker
  const std::vector<TreeNode>& parts() const { return parts_; }  // what it pushes per chunk
  const std::vector<ChunkRange>& chunks() const { return chunks_; }
  // How gradients travel. A worker that adds gradients of slices itself rounds each of them, and
  // each sum, with RoundToWire and AddOnWire, so that it adds what the server would have added.
  // What it pushes is rounded by PushChunk.
  WireType wire_type() const { return wire_type_; }

  void ReportReady();
  Order NextOrder();

  // The memory of the gradient of parts()[part]: the whole arena. Chunk c of it may be written
  // from the arrival of W(step) chunk c until PushChunk.
  std::span<float> Slot(size_t part);
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
  Clock::time_point HandedOverAt() const;

  // Tells the server why this worker gives up, and waits a moment until that has left.
  void ReportFailure(const std::string& message, ExitCode code);

 private:
  // How this worker joins, and whether it has said Hello before.
  enum class Attempt { kFirst, kInsteadOfLocal };
  // Connects, says Hello, waits for Welcome; or why there is none.
  std::optional<Error> Join(Attempt attempt);
  wire::WorkerMessage Hello(Attempt attempt) const;
  bool MayFallBack() const;

  static constexpr std::chrono::milliseconds kBeatInterval{1000};

  struct Outgoing {
    wire::WorkerMessage message;
    std::span<const float> tensor;
  };

  void Communicate(std::stop_token stop);
  void Beat();
  // Handles some of what has come, waiting for it up to `limit`. With receiving_ locked.
  void Receive(std::chrono::milliseconds limit);
  // The same for the compute thread, unless `satisfied`, which mutex_ guards.
  template <typename Condition>
  void ReceiveHere(std::chrono::milliseconds limit, const Condition& satisfied);
  // Waits, with mutex_ locked, until `condition` holds, which mutex_ guards.
  template <typename Condition>
  void Wait(std::unique_lock<std::mutex>& lock, const Condition& condition);
  void AwaitVersion(const std::vector<int64_t>& arrived, int64_t version, size_t chunk);
  void CheckSilence();
  void SendQueued();
  // False: a tensor, and there is no room for it at the moment.
  bool Send(const Outgoing& outgoing);
  // Sends the words that are queued and what the transport has.
  void Drain();
  void Handle(const FromServer& event);
  void HandleWelcome(const wire::Welcome& welcome);
  bool StoreWeights(const wire::WeightsChunk& weights, const Payload& payload);
  void MarkArrived(const wire::WeightsChunk& weights, bool stored, size_t bytes);
  // kSoon: with the next message that goes at once, or when this worker begins to wait.
  enum class Urgency { kNow, kSoon };
  void Queue(wire::WorkerMessage message, Urgency urgency = Urgency::kNow) {
    Queue({std::move(message), {}}, urgency);
  }
  void Queue(Outgoing outgoing, Urgency urgency = Urgency::kNow);
  void Fail(Error error);
  // Rethrows what ended the communication.
  void ThrowIfFailed() const;
  wire::WorkerMessage NewMessage() const;

  const ClientOptions options_;
  // Wakes the communication thread. Before all whose threads ring it.
  const EventFd bell_;
  StepPlan plan_;
  int64_t first_step_ = 0;
  Range slices_;
  std::vector<TreeNode> parts_;
  std::vector<ChunkRange> chunks_;
  WireType wire_type_ = wire::FP32;
  // With 16 bits. Written by the communication thread, read and given back by ZeroMQ's.
  std::optional<WireBuffers> wire_buffers_;
  // The communication thread's, taken from outgoing_: what goes at once, and tensors, by step and
  // chunk, that wait for room in the window.
  std::deque<Outgoing> words_;
  std::multimap<std::pair<int64_t, uint32_t>, Outgoing> tensors_;
  std::shared_ptr<SendWindow> window_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool welcome_ = false;
  bool stopped_ = false;  // the server said Stop
  bool flush_ = false;    // send what is queued, then end
  std::deque<Outgoing> outgoing_;
  std::deque<Order> orders_;
  std::vector<int64_t> arrived_;          // newest version of each chunk; -1: none
  std::vector<int64_t> average_arrived_;  // … of the average; first_step_: none
  Clock::time_point handed_over_;
  std::optional<Error> error_;
  bool hand_over_failed_ = false;  // that is what error_ says
  Clock::time_point last_heard_ = Clock::now();
  OwnGap own_gap_{2 * kBeatInterval};  // looked at with each beat

  // Used by the communication thread only, but for memory, unless link_->any_thread().
  std::unique_ptr<ClientLink> link_;
  bool any_thread_ = false;
  std::mutex receiving_;  // any_thread_: whoever receives; locked before mutex_
  AdaptiveSpin spin_;     // with receiving_ locked
  std::jthread thread_;
};

}  // namespace muster
