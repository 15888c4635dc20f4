// The seats of a job, one for each rank, and who has them. A decider without a clock.
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
  kAbsent,     // nobody has the rank
  kGivenUp,    // its worker was lost before the start or never came, and nobody waits for another
  kWaiting,    // came before the start, which does not wait for it
  kPreparing,  // has not said Ready, or not since it was reset
  kReady,
  kReleased,  // wanted to leave, and was told to
  kFinished,  // said Goodbye
};

struct Member {
  MemberState state = MemberState::kAbsent;
  PeerId peer = 0;
  uint32_t incarnation = 0;
  uint64_t process = 0;  // what it says of itself: the same in each of its Hellos
  std::string host;
  int64_t pid = 0;
  uint32_t threads = 0;
  std::string arithmetic;  // its backend, in its own words
  bool shares_memory = false;
  bool was_ready = false;  // since it has its seat
  bool leaving = false;    // said Leave: it gets no new order
  bool left = false;       // absent, since it had wanted to leave
  // The first version of the weights that it gets; nothing: it gets neither weights nor orders.
  std::optional<int64_t> weights_from;
  std::chrono::steady_clock::time_point unready_since, last_heard;

  bool present() const { return state >= MemberState::kWaiting; }
};

class Roster {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Roster(const VariableLayout& layout, JoinTerms terms);

  // The rank of a worker that has a seat now, or why it is refused (one line for that worker).
  struct Seating {
    uint32_t rank = 0;
    std::string refusal;    // "": seated
    bool is_taken = false;  // the reason is that another worker has the rank
  };
  // Seats the worker that said Hello, on the rank that it wants, or on any that is free.
  Seating Join(PeerId peer, const wire::Hello& hello, Time now);
  // Gives the seat of a worker that was welcomed over the local link, and cannot use its memory,
  // to that worker's second connection.
  Seating Reseat(PeerId peer, const wire::Hello& hello, Time now);
  // The member begins anew: what it said before counts no more.
  void BeginAnew(uint32_t rank, Time now);
  // The member is gone, and its seat free. Its name stays.
  void Vacate(uint32_t rank, Time now);
  // The job has started: later workers need not wait for that.
  void Open() { open_ = true; }

  const JoinCheck& check() const { return check_; }
  const SeenData& data() const { return check_.data(); }
  uint32_t workers() const { return terms_.workers; }  // with which the job starts
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  uint64_t job() const { return terms_.job; }
  Member& at(uint32_t rank) { return members_[rank]; }
  const Member& at(uint32_t rank) const { return members_[rank]; }
  std::optional<uint32_t> RankOf(PeerId peer) const;
  // Whether the address is the one that this rank's member must use.
  bool Matches(uint32_t rank, const wire::Address& address) const;

  // For whom the start waits.
  std::vector<uint32_t> MissingRanks() const;
  // Whether those that are here are enough for the start.
  bool IsEnough() const;
  // Members that are here, without those that wait for the start.
  std::vector<uint32_t> Seated() const;
  std::vector<uint32_t> Unready() const;
  // Members that get weights and orders. Staying: without those that leave, which get no new ones.
  std::vector<uint32_t> Active() const;
  std::vector<uint32_t> Staying() const;
  // Active members that can work with this version; leaving ones only if there are no others.
  std::vector<uint32_t> Helpers(int64_t version) const;
  // Members that may become active.
  std::vector<uint32_t> ReadyToEnter() const;
  // Whether it got the weights of this version, and keeps them until the next but one comes.
  bool HasVersion(uint32_t rank, int64_t version) const;

  // "rank 1 (host lab3, pid 77)", and several of them.
  std::string Name(uint32_t rank) const;
  std::string Names(const std::vector<uint32_t>& ranks) const;
  // What a person should know of the worker on this rank although it fits; "" if nothing.
  std::string Remark(uint32_t rank) const;
  // What the workers' bits depend on in their own words, each wording once, in alphabetical order.
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
