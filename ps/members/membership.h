// The members of the job, and what they are told: joining, welcome, heartbeats, the end. The
// dispatcher decides what they compute, the run what a loss means.
//
// A decider: no link, no clock. Messages wait here until the server sends them.
//
// Owner: the server. Used in the loop's thread.
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

// What a worker is told when it is welcome.
struct WelcomeTerms {
  StepPlan plan;
  Assignment assignment;
  std::span<const Chunk> chunks;
  WireType wire_type = wire::FP32;
};

// A message that the server is to send.
struct ToWorker {
  PeerId peer = 0;
  std::optional<uint32_t> rank;  // the member that it is for; nothing: a stranger
  uint32_t incarnation = 0;
  std::shared_ptr<wire::ServerMessage> message;  // without rank and incarnation
  std::span<const std::byte> tensor;             // see ServerLink::Send

  // With the address of this member.
  const wire::ServerMessage& Addressed() const;
};

class Membership {
 public:
  using Time = Roster::Time;

  // `recorder` and the layout outlive this.
  Membership(const VariableLayout& layout, JoinTerms terms, Recorder& recorder);

  const Roster& roster() const { return roster_; }
  uint32_t size() const { return roster_.size(); }

  // Joining. A worker that is refused is told why.
  // kWaits: for the start. kJoinedLate: the job has started already.
  enum class Outcome { kRefused, kJoined, kWaits, kJoinedLate, kCameBack };
  struct Arrival {
    Outcome outcome;
    uint32_t rank;
  };
  Arrival OnHello(PeerId peer, const wire::Hello& hello, bool shares_memory, Time now);
  // Somebody who may not join: a line in the log, and an event.
  void Refuse(const std::string& who, const std::string& why);
  // All are here for whom the start waits. `terms` hold from now on.
  void WelcomeAll(WelcomeTerms terms);
  // One that came late, or back over another link.
  void Welcome(uint32_t rank);
  void OnReady(uint32_t rank);
  void OnLeave(uint32_t rank) { roster_.at(rank).leaving = true; }
  // True once: all that were welcomed are ready, and the job starts with them.
  bool Start();
  // After that: those that the start did not wait for. They are joiners from now on.
  std::vector<uint32_t> AdmitWaiting(Time now);
  // From now on it gets weights, W(version) first, and orders.
  void Activate(uint32_t rank, int64_t version);
  // It gets none any more, and nothing that it sends counts, until it has said Ready and is active
  // again.
  void Reset(uint32_t rank, Time now);
  // The member is gone, or is told to go: another may take its seat.
  void Vacate(uint32_t rank, const std::string& why, Time now);
  // It has said Leave, and has done its part.
  void Release(uint32_t rank);
  // It was lost before the start, or never came: the start does not wait for another one.
  void GiveUp(uint32_t rank) { roster_.at(rank).state = MemberState::kGivenUp; }
  // The gradient buffers of a member, as its Welcome says.
  uint32_t Buffers() const;

  // The rank whose message this is, or why it is nobody's. A sign of life.
  std::optional<uint32_t> SenderOf(const FromWorker& event, Time now, std::string& why);
  // Members that gave no sign of life for longer than this.
  std::vector<uint32_t> Silent(Time now, double silence_s) const;
  // The server was suspended: signs of life count from so much later on.
  void Extend(std::chrono::steady_clock::duration suspension);

  // The address is filled in.
  void Send(uint32_t rank, wire::ServerMessage message, std::span<const std::byte> tensor = {});
  // To all that are active.
  void Broadcast(wire::ServerMessage message, std::span<const std::byte> tensor = {});
  void SendHeartbeats();
  // Tells everyone to stop, also those that ask for a rank. Nobody may join any more.
  void StopAll(bool completed, const std::string& reason);
  // After that: a worker that comes only now is told the same.
  void TurnAway(PeerId peer, const wire::Hello& hello);
  // A connection has ended.
  void OnClosed(PeerId peer) { ask_again_.erase(peer); }
  // It said Goodbye, or cannot be reached any more.
  void MarkFinished(uint32_t rank) { roster_.at(rank).state = MemberState::kFinished; }
  bool AllFinished() const;

  // Hands over the messages that wait, in order. `messages` are empty.
  void TakeOutgoing(std::vector<ToWorker>& messages) { messages.swap(outgoing_); }

 private:
  // kRunning: who comes now joins in the middle.
  enum class Phase { kGathering, kPreparing, kRunning, kClosed };

  void Post(uint32_t rank, const std::shared_ptr<wire::ServerMessage>& message,
            std::span<const std::byte> tensor);

  Recorder& recorder_;
  const bool may_join_late_;
  Roster roster_;
  Phase phase_ = Phase::kGathering;
  WelcomeTerms terms_;
  wire::ServerMessage stop_;  // what everybody has been told, once closed
  RareLine refused_;
  std::set<PeerId> ask_again_;  // were refused because their rank is taken
  std::vector<ToWorker> outgoing_;
};

}  // namespace muster
