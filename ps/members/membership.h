// The members of the job and the messages to them: joining, welcome, heartbeats, stop. The
// dispatcher decides what they compute; the run decides what a loss means.
//
// Pure logic: no link, no clock. Messages are queued here until the server sends them.
//
// Owner: the server. Used on the loop thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/link/link.h"
#include "common/link/wire_type.h"
#include "common/plan/assignment.h"
#include "common/plan/chunks.h"
#include "common/plan/step_plan.h"
#include "ps/members/roster.h"
#include "ps/record/recorder.h"

namespace muster {

struct WelcomeTerms {
  StepPlan plan;
  Assignment assignment;
  std::span<const Chunk> chunks;
  WireType wire_type = wire::FP32;
};

struct ToWorker {
  PeerId peer = 0;
  std::optional<uint32_t> rank;  // none: the receiver has not joined
  uint32_t incarnation = 0;
  std::shared_ptr<wire::ServerMessage> message;  // without rank and incarnation
  std::span<const std::byte> tensor;             // see ServerLink::Send

  // Fills in the member's address and returns the message.
  const wire::ServerMessage& Addressed() const;
};

class Membership {
 public:
  using Time = Roster::Time;

  // `recorder` and the layout must outlive this object.
  Membership(const VariableLayout& layout, JoinTerms terms, Recorder& recorder);

  const Roster& roster() const { return roster_; }
  uint32_t size() const { return roster_.size(); }

  // Handles a worker that wants to join. A rejected worker receives the reason. kWaits: must wait
  // for the start. kJoinedLate: joined after the start. kCameBack: reconnected over ZeroMQ.
  enum class Outcome { kRefused, kJoined, kWaits, kJoinedLate, kCameBack };
  struct Arrival {
    Outcome outcome;
    uint32_t rank;
  };
  // `connection`: see ServerLink::ConnectionOf.
  Arrival OnHello(PeerId peer, PeerId connection, const wire::Hello& hello, bool shares_memory,
                  Time now);
  // Logs and records a rejected connection.
  void Refuse(const std::string& who, const std::string& why);
  // Called when all initial workers have joined. Stores `terms` and welcomes the workers.
  void WelcomeAll(WelcomeTerms terms);
  // Welcomes a worker that joined late or reconnected.
  void Welcome(uint32_t rank);
  void OnReady(uint32_t rank);
  void OnLeave(uint32_t rank) { roster_.at(rank).leaving = true; }
  // Starts the job with the welcomed workers. Returns true once, when all of them are ready.
  bool Start();
  // Accepts the workers that the start did not wait for and returns their ranks.
  std::vector<uint32_t> AdmitWaiting(Time now);
  // Activates the member: from now on it gets orders and weights, starting with W(version).
  void Activate(uint32_t rank, int64_t version);
  // Stops sending orders and weights to the member and ignores its messages, until it has reported
  // Ready and is active again.
  void Reset(uint32_t rank, Time now);
  // Called when a member is lost or must stop. Frees its rank.
  void Vacate(uint32_t rank, const std::string& why, Time now);
  // Releases a member that requested to leave and has finished its work.
  void Release(uint32_t rank);
  // Called when a rank was lost before the start or never joined. The start does not wait for it.
  void GiveUp(uint32_t rank) { roster_.at(rank).state = MemberState::kGivenUp; }
  // The number of gradient buffers of a member, as in its Welcome.
  uint32_t Buffers() const;

  // Returns the rank that sent the message, or sets `why`. The message counts as a sign of life.
  std::optional<uint32_t> SenderOf(const FromWorker& event, Time now, std::string& why);
  // Members without a sign of life for longer than `silence_s`.
  std::vector<uint32_t> Silent(Time now, double silence_s) const;
  // Called after the server was suspended. Extends all deadlines by this time.
  void Extend(std::chrono::steady_clock::duration suspension);

  // The same, but only of those for workers that have not reported Ready.
  void ExtendUnready(std::chrono::steady_clock::duration suspension);

  // Queues a message and fills in its address.
  void Send(uint32_t rank, wire::ServerMessage message, std::span<const std::byte> tensor = {});
  // Queues a message to all active members.
  void Broadcast(wire::ServerMessage message, std::span<const std::byte> tensor = {});
  void SendHeartbeats();
  // Tells all workers to stop, including those that wait for a taken rank. Closes the job.
  // `step`: the number of completed steps.
  void StopAll(bool completed, const std::string& reason, int64_t step);
  // Answers a worker that connects after StopAll.
  void TurnAway(PeerId peer, const wire::Hello& hello);
  void OnClosed(PeerId peer);
  // Called when the member has said Goodbye or is unreachable.
  void MarkFinished(uint32_t rank) { roster_.at(rank).state = MemberState::kFinished; }
  bool AllFinished() const;

  // Takes the queued messages, in order. `messages` must be empty.
  void TakeOutgoing(std::vector<ToWorker>& messages) { messages.swap(outgoing_); }

 private:
  // kRunning: workers may join late.
  enum class Phase { kGathering, kPreparing, kRunning, kClosed };

  void Post(uint32_t rank, const std::shared_ptr<wire::ServerMessage>& message,
            std::span<const std::byte> tensor);

  Recorder& recorder_;
  const bool may_join_late_;
  Roster roster_;
  Phase phase_ = Phase::kGathering;
  WelcomeTerms terms_;
  wire::ServerMessage stop_;  // the message that StopAll sent
  RareLine refused_;
  std::set<PeerId> had_rank_;   // open connections that have a rank or have lost it
  std::set<PeerId> ask_again_;  // rejected because their rank is taken; they retry
  std::vector<ToWorker> outgoing_;
};

}  // namespace muster
