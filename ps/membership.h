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
  enum class Outcome { kRefused, kJoined, kCameBack };
  struct Arrival {
    Outcome outcome;
    uint32_t rank;
  };
  Arrival OnHello(PeerId peer, const wire::WorkerMessage& message);
  // Somebody who may not join: a line, here and at the launcher.
  void Refuse(const std::string& who, const std::string& why);
  // All are here. `terms` hold from now on.
  void WelcomeAll(WelcomeTerms terms);
  // Once more, for one that came back over another link.
  void Welcome(uint32_t rank);
  // True when it was the last one, at the start.
  bool OnReady(uint32_t rank);
  // From now on it gets weights, W(version) first, and orders.
  void Enter(uint32_t rank, int64_t version);
  // It gets none any more, and nothing that it sends counts, until it has said Ready and entered
  // again.
  void Fence(uint32_t rank);
  // Those that get weights and orders; those that are ready to.
  std::vector<uint32_t> Entered() const;
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

  // Moves every member's last sign of life on by a time in which none could be heard.
  void Forgive(std::chrono::steady_clock::duration own_gap);

  const Roster& roster() const { return roster_; }
  bool entered(uint32_t rank) const { return roster_.at(rank).entered; }
  // Whether it got the weights of this version, and keeps them until the next but one comes.
  bool HasVersion(uint32_t rank, int64_t version) const {
    return entered(rank) && roster_.at(rank).entered_at <= version;
  }
  uint32_t size() const { return roster_.size(); }
  std::string Name(uint32_t rank) const { return roster_.Name(rank); }
  // "rank 0 (…), rank 3 (…)"
  std::string Names(const std::vector<uint32_t>& ranks) const;
  std::vector<uint32_t> UnreadyRanks() const;

 private:
  // Who may still come.
  enum class Phase { kGathering, kPreparing, kClosed };

  bool EverybodyLeft() const;

  ServerLink& link_;
  Reporter& reporter_;
  const OnLost on_lost_;
  Roster roster_;
  Phase phase_ = Phase::kGathering;
  WelcomeTerms terms_;
  RareLine refused_;
};

}  // namespace muster
