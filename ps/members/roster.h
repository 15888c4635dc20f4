// The ranks of a job and their members. Pure logic without a clock.
//
// Owner: Membership.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/link/link.h"
#include "ps/members/join_check.h"

namespace muster {

enum class MemberState {
  kAbsent,     // the rank is free
  kGivenUp,    // lost before the start or never joined; the start does not wait for it
  kWaiting,    // joined before the start, which does not wait for it
  kPreparing,  // has not reported Ready since it joined or was reset
  kReady,
  kReleased,  // requested to leave and received Stop
  kFinished,  // said Goodbye
};

struct Member {
  MemberState state = MemberState::kAbsent;
  PeerId peer = 0;
  PeerId connection = 0;  // ServerLink::ConnectionOf
  uint32_t incarnation = 0;
  uint64_t process =
      0;  // random number that identifies the process; the same in each of its Hellos
  std::string host;
  int64_t pid = 0;
  uint32_t threads = 0;
  std::string arithmetic;  // describes its backend
  bool shares_memory = false;
  bool was_ready = false;  // has been ready since it got this rank
  bool leaving = false;    // requested to leave; gets no new orders
  bool left = false;       // absent because it left at its own request
  // The first version of the weights that the member gets. Without one, it gets neither weights nor
  // orders.
  std::optional<int64_t> weights_from;
  std::chrono::steady_clock::time_point unready_since, last_heard;

  bool present() const { return state >= MemberState::kWaiting; }
};

class Roster {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Roster(const VariableLayout& layout, JoinTerms terms);

  // The rank of an accepted worker, or why it is rejected.
  struct Seating {
    uint32_t rank = 0;
    std::string refusal;    // "": accepted
    bool is_taken = false;  // rejected because another worker has the rank
  };
  // Gives the worker the rank that it requests, or else any free one.
  Seating Join(PeerId peer, const wire::Hello& hello, Time now);
  // Moves a member whose shared memory failed to its second connection.
  Seating Reseat(PeerId peer, const wire::Hello& hello, Time now);
  // Resets the member: its earlier messages no longer count.
  void BeginAnew(uint32_t rank, Time now);
  // Frees the rank. Name() still returns the last member.
  void Vacate(uint32_t rank, Time now);
  // Called when the job has started. Workers that join later need not wait.
  void Open() { open_ = true; }

  const JoinCheck& check() const { return check_; }
  const SeenData& data() const { return check_.data(); }
  uint32_t workers() const { return terms_.workers; }  // number of workers that the job starts with
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  uint64_t job() const { return terms_.job; }
  Member& at(uint32_t rank) { return members_[rank]; }
  const Member& at(uint32_t rank) const { return members_[rank]; }
  std::optional<uint32_t> RankOf(PeerId peer) const;
  // Whether the address is correct for this rank's current member.
  bool Matches(uint32_t rank, const wire::Address& address) const;

  // The ranks below workers() whose member has not reached this state. The default returns the
  // ranks that the start waits for.
  std::vector<uint32_t> MissingRanks(MemberState least = MemberState::kGivenUp) const;
  bool IsEnough() const;
  // Members that have joined, except those that wait for the start.
  std::vector<uint32_t> Seated() const;
  std::vector<uint32_t> Unready() const;
  // Members that get weights and orders.
  std::vector<uint32_t> Active() const;
  // Active members, except those that are leaving, which get no new orders.
  std::vector<uint32_t> Staying() const;
  // Active members that have this version; leaving ones only if there are no others.
  std::vector<uint32_t> Helpers(int64_t version) const;
  std::vector<uint32_t> ReadyToEnter() const;
  // Whether the member has this version. It keeps a version until version + 2 arrives.
  bool HasVersion(uint32_t rank, int64_t version) const;

  // "rank 1 (host lab3, pid 77)".
  std::string Name(uint32_t rank) const;
  std::string Names(const std::vector<uint32_t>& ranks) const;
  // A warning about an accepted worker, or "".
  std::string Remark(uint32_t rank) const;
  // The distinct descriptions of the members' arithmetic, in alphabetical order.
  std::vector<std::string> Arithmetic() const;

 private:
  Seating FindSeat(const wire::Hello& hello) const;
  template <typename Is>
  std::vector<uint32_t> Ranks(const Is& is) const;

  const JoinTerms terms_;
  JoinCheck check_;
  bool open_ = false;
  std::vector<Member> members_;
};

}  // namespace muster
