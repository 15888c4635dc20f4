// Who has joined: one entry per rank. Owner: the server's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/variable_layout.h"
#include "common/link/link.h"
#include "proto/wire.pb.h"

namespace muster {

// What a worker must present to join.
struct JoinTerms {
  std::string token;
  uint64_t job = 0;
  uint32_t workers = 0;               // with which the job starts
  std::vector<std::string> settings;  // common/config/compute_settings.h
  uint32_t seats = 0;                 // for more of them, later; 0: as many as `workers`
};

struct Member {
  std::optional<PeerId> peer;  // empty: not here
  uint32_t incarnation = 0;
  uint64_t process = 0;  // what it says of itself: the same in each of its Hellos
  std::string host;
  int64_t pid = 0;
  uint32_t threads = 0;
  std::string arithmetic;  // its backend, in its own words
  bool ready = false;
  bool entered = false;    // gets weights and orders
  int64_t entered_at = 0;  // the first version of the weights that it got
  bool finished = false;   // said Goodbye
  bool leaving = false;    // said Leave: is ordered nothing new
  bool released = false;   // … and has been told to go
  bool given_up = false;   // was lost before the start, and is not waited for
  bool waits = false;      // came before the start, which does not wait for it: a joiner after that
  bool was_ready = false;  // since it has its seat
  std::chrono::steady_clock::time_point unready_since;
  std::chrono::steady_clock::time_point last_heard;
};

class Roster {
 public:
  Roster(const VariableLayout& layout, JoinTerms terms);

  // The rank of a worker that has a seat now, or why it is refused (one line for that worker).
  struct Seating {
    uint32_t rank = 0;
    std::string refusal;  // "": seated
  };
  // Seats the worker that said Hello, on the rank that it wants, or on any that is free.
  Seating Join(PeerId peer, const wire::Hello& hello);

  // Whether it is of this job.
  bool HasToken(const wire::Hello& hello) const;

  // Gives the seat of a worker that was welcomed over the local link, and cannot use its memory,
  // to that worker's second connection.
  Seating Reseat(PeerId peer, const wire::Hello& hello);

  // The member begins anew: what it said before is not heard any more.
  void BeginAnew(uint32_t rank);
  // The member is gone, and its seat free. What it was called stays.
  void Vacate(uint32_t rank);
  // The job has started: from now on nobody waits for that.
  void Open() { open_ = true; }

  // The rank that this peer holds.
  std::optional<uint32_t> RankOf(PeerId peer) const;
  // True if the address is the one that this rank's member must use.
  bool Matches(uint32_t rank, const wire::Address& address) const;

  // All are here that the job starts with.
  bool Complete() const;
  // Of these.
  std::vector<uint32_t> MissingRanks() const;
  uint32_t workers() const { return terms_.workers; }
  Member& at(uint32_t rank) { return members_[rank]; }
  const Member& at(uint32_t rank) const { return members_[rank]; }
  uint32_t size() const { return static_cast<uint32_t>(members_.size()); }
  uint64_t job() const { return terms_.job; }
  // "rank 1 (host lab3, pid 77)"
  std::string Name(uint32_t rank) const;
  // What a person should know of the worker on this rank although it fits; "" if nothing.
  std::string Remark(uint32_t rank) const;

  int64_t train_samples() const { return train_samples_; }
  int64_t test_samples() const { return test_samples_; }
  int64_t validation_samples() const { return validation_samples_; }
  uint64_t data_fingerprint() const { return data_fingerprint_; }
  // What the workers' bits depend on in their own words, each wording once, in alphabetical order.
  std::vector<std::string> Arithmetic() const;

 private:
  Seating FindSeat(const wire::Hello& hello) const;
  std::optional<std::string> CheckGraph(const wire::Hello& hello) const;
  std::optional<std::string> CheckSettings(const wire::Hello& hello) const;
  std::optional<std::string> CheckData(uint32_t rank, const wire::Hello& hello) const;

  const VariableLayout& layout_;
  const JoinTerms terms_;
  bool open_ = false;
  std::vector<Member> members_;
  // What the first worker that joined saw; all others must see the same data.
  std::optional<uint32_t> first_;
  int64_t train_samples_ = 0, test_samples_ = 0, validation_samples_ = 0;
  uint64_t data_fingerprint_ = 0;
};

}  // namespace muster
