// Who takes part in the job, and how they are spoken to: joining, welcome, heartbeats, loss, the
// end. What a worker computes is the assignment's business, what a loss means the coordinator's.
//
// Owner: the server. Used in the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/link/link.h"
#include "common/link/wire_type.h"
#include "common/plan/assignment.h"
#include "common/plan/chunks.h"
#include "common/plan/step_plan.h"
#include "ps/reporter.h"
#include "ps/roster.h"

namespace muster {

// What a worker is told when it is welcome.
struct WelcomeTerms {
  StepPlan plan;
  Assignment assignment;
  std::span<const Chunk> chunks;
  WireType wire_type = wire::FP32;
};

class Membership {
 public:
  // A member that is gone: why, and with which code a job ends that cannot go on without it.
  using OnLost = std::function<void(uint32_t rank, ExitCode code, const std::string& why)>;

  // All outlive this.
  Membership(const VariableLayout& layout, JoinTerms terms, ServerLink& link, Reporter& reporter,
             OnLost on_lost);

  // Joining. One that is refused is told why.
  // kWaits: for the start. kJoinedLate: the job has started already.
  enum class Outcome { kRefused, kJoined, kWaits, kJoinedLate, kCameBack };
  struct Arrival {
    Outcome outcome;
    uint32_t rank;
  };
  Arrival OnHello(PeerId peer, const wire::WorkerMessage& message);
  // Somebody who may not join: a line, here and at the launcher.
  void Refuse(const std::string& who, const std::string& why);
  // All are here. `terms` hold from now on.
  void WelcomeAll(WelcomeTerms terms);
  // One that came late, or back over another link.
  void Welcome(uint32_t rank);
  void OnReady(uint32_t rank) { roster_.at(rank).ready = roster_.at(rank).was_ready = true; }
  void OnLeave(uint32_t rank) { roster_.at(rank).leaving = true; }
  // Those that were welcomed are ready, and the job starts with them: true once.
  bool Start();
  // After that: those that the start did not wait for. They are joiners from now on.
  std::vector<uint32_t> Admit();
  // From now on it gets weights, W(version) first, and orders.
  void Enter(uint32_t rank, int64_t version);
  // It gets none any more, and nothing that it sends counts, until it has said Ready and entered
  // again.
  void Fence(uint32_t rank);
  // The member is gone, or is told to go: another may take its seat.
  void Vacate(uint32_t rank, const std::string& why);
  // It has said Leave, and has done its part.
  void Release(uint32_t rank);
  // Lost before the start; the others do not wait for it.
  void GiveUp(uint32_t rank) { roster_.at(rank).given_up = true; }
  // Those that get weights and orders; of these, those that get new ones; those that are ready to.
  std::vector<uint32_t> Entered() const;
  std::vector<uint32_t> Staying() const;
  std::vector<uint32_t> ReadyToEnter() const;
  // The gradient buffers of a member, as its Welcome says.
  uint32_t ArenasOf(uint32_t rank) const;

  // The rank whose message this is, or why it is nobody's. A sign of life.
  std::optional<uint32_t> SenderOf(const FromWorker& event, std::string& why);
  // The connection of one ended.
  void OnClosed(PeerId peer);
  // Who has given no sign of life for longer than this is lost.
  void CheckSilence(std::chrono::steady_clock::time_point now, double silence_s);
  void OnGoodbye(uint32_t rank) { roster_.at(rank).finished = true; }

  // Address and incarnation are filled in.
  wire::ServerMessage NewMessage() const;
  void Send(uint32_t rank, wire::ServerMessage& message, std::span<const std::byte> tensor = {});
  // To all that have entered.
  void Broadcast(wire::ServerMessage& message, std::span<const std::byte> tensor = {});
  void SendHeartbeats();
  // Tells everyone to stop and waits, for a while, until they have said Goodbye or are gone.
  void StopAll(bool completed, const std::string& reason);
  // After that, while something is written: who comes only now is told the same.
  void TurnAway();

  // Moves every member's last sign of life on by a time in which none could be heard.
  void Forgive(std::chrono::steady_clock::duration suspension);

  const Roster& roster() const { return roster_; }
  bool entered(uint32_t rank) const { return roster_.at(rank).entered; }
  // Whether it got the weights of this version, and keeps them until the next but one comes.
  bool HasVersion(uint32_t rank, int64_t version) const {
    return entered(rank) && roster_.at(rank).entered_at <= version;
  }
  uint32_t size() const { return roster_.size(); }
  // Whether all weights that it is told of are there for it at once.
  bool SharesMemory(uint32_t rank) const {
    return roster_.at(rank).peer && link_.SharesMemory(*roster_.at(rank).peer);
  }
  std::string Name(uint32_t rank) const { return roster_.Name(rank); }
  // "rank 0 (…), rank 3 (…)"
  std::string Names(const std::vector<uint32_t>& ranks) const;
  // Those that are here, but for who waits for the start; of these, who is not ready.
  std::vector<uint32_t> Seated() const;
  std::vector<uint32_t> UnreadyRanks() const;

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  // kRunning: who comes now joins in the middle.
  enum class Phase { kGathering, kPreparing, kRunning, kClosed };

  bool EverybodyLeft() const;
  void TurnAway(const FromWorker& event);
  const std::vector<TreeNode>& FirstNodes(uint32_t rank) const;
  template <typename Is>
  std::vector<uint32_t> Ranks(const Is& is) const;

  ServerLink& link_;
  Reporter& reporter_;
  const OnLost on_lost_;
  const bool may_join_late_;
  Roster roster_;
  Phase phase_ = Phase::kGathering;
  WelcomeTerms terms_;
  wire::ServerMessage stop_;  // what everybody has been told, once closed
  RareLine refused_;
};

}  // namespace muster
