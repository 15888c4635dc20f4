// What was given out: a lease is one subtree of slices, of one step, for one member, with one of
// its gradient buffers. A loss or a gradient counts only under an open lease of its sender.
//
// Owner: the coordinator.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

struct Lease {
  uint64_t id = 0;
  uint32_t rank = 0;
  int64_t step = 0;
  TreeNode node;
  uint32_t arena = 0;  // of the member's gradient buffers
  bool again = false;  // somebody else's work
  bool open = true;
  bool late = false;      // others were given its work, too
  bool accepted = false;  // a chunk of it lies in the arena until the step ends
  std::chrono::steady_clock::time_point given = std::chrono::steady_clock::now();
  std::vector<bool> pending;  // the chunks that it is still to bring
  size_t pending_count = 0;
  std::set<int64_t> losses;  // slices whose loss has come under it

  // The last of what it is to bring has come, but for losses.
  bool brought() const { return pending_count == 0; }
};

class Leases {
 public:
  explicit Leases(size_t chunks) : chunks_(chunks) {}

  // One for each node, with consecutive ids, in the arenas from 0 on. The first one's id.
  uint64_t Give(uint32_t rank, int64_t step, const std::vector<TreeNode>& nodes);
  // One for these chunks of a subtree that somebody else has or had.
  const Lease& GiveAgain(uint32_t rank, int64_t step, const TreeNode& node, uint32_t arena,
                         std::span<const uint32_t> chunks);

  // Null: this member has no such lease that is open.
  const Lease* Find(uint64_t id, uint32_t rank) const;
  // The loss of a slice has come under it.
  void AddLoss(uint64_t id, int64_t slice) {
    leases_[id - leases_.front().id].losses.insert(slice);
  }
  // The chunk has come. False: the lease does not wait for it.
  bool Bring(uint64_t id, uint32_t chunk);

  // All of a member.
  void CloseAll(uint32_t rank);
  // … whose memory is gone as well: another process may take its rank.
  void Disown(uint32_t rank);
  void MarkLate(uint64_t id) { leases_[id - leases_.front().id].late = true; }
  // Whether somebody is at this slice, and is not late with it.
  bool Holds(int64_t step, int64_t slice, int64_t slices) const;
  // Whether the member has some of this subtree already.
  bool Overlaps(uint32_t rank, int64_t step, const TreeNode& node) const;
  // Steps before this one are over.
  void Forget(int64_t before);

  // The first of the member's arenas that is free for a lease of this step. An open lease keeps its
  // arena. A closed one does if a chunk of it was accepted, because the sum may still read it.
  // Leases of the next step do not count: their gradients are not written before this step is over.
  std::optional<uint32_t> FreeArena(uint32_t rank, int64_t step, uint32_t arenas) const;
  // The members that have not brought all of this step. kOwn: what they do for others is left out.
  enum class Whose { kOwn, kAny };
  std::vector<uint32_t> LateRanks(int64_t step, Whose whose) const;
  // Slices of a step that members have leases of and are not late with, where nobody's overlap.
  int64_t HeldSlices(int64_t step, int64_t slices) const;
  // Slices of the member's own part of a step whose loss has come, also under leases that have
  // ended.
  int64_t OwnLosses(uint32_t rank, int64_t step) const;
  // Whether the member is at a slice of this step: its loss has not come.
  bool Computes(uint32_t rank, int64_t step, int64_t slices) const;
  // Whether there is something of this step that the member has not brought.
  bool Owes(uint32_t rank, int64_t step) const;
  // What the member has not brought of this step and of later ones.
  bool IsBusy(uint32_t rank) const;
  // What members were given counts from so much later on.
  void Forgive(std::chrono::steady_clock::duration gap);
  // Of a step, in the order in which they were given.
  template <typename Visit>
  void ForEachOpen(int64_t step, const Visit& visit) const {
    for (const Lease& lease : leases_) {
      if (lease.open && lease.step == step) visit(lease);
    }
  }

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  Lease& Add(uint32_t rank, int64_t step, const TreeNode& node, uint32_t arena);

  const size_t chunks_;
  uint64_t next_id_ = 1;
  std::deque<Lease> leases_;  // by id
};

}  // namespace muster
