// Who is to compute what: the assignment that stands, the leases that were given under it, and the
// orders that carry both to the members. What counts and what comes of it is the coordinator's
// business.
//
// Owner: the coordinator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/plan/assignment.h"
#include "common/plan/step_plan.h"
#include "proto/wire.pb.h"
#include "ps/leases.h"
#include "ps/membership.h"

namespace muster {

class WorkOrders {
 public:
  WorkOrders(Membership& members, size_t chunks) : members_(members), leases_(chunks) {}

  // Even shares for all members that the job starts with, from this step on.
  void Begin(const StepPlan& plan, int64_t step);
  const Assignment& assignment() const { return assignment_; }
  // Other shares, from the next step on that is ordered: the subtrees of each rank, which together
  // cover each slice once. A member has one gradient buffer more than its first share has subtrees:
  // no share may need more than that.
  void Assign(std::vector<std::vector<TreeNode>> nodes);

  // These divide the slices from the next step that is ordered: each has so many neighbouring ones,
  // whose gradients it adds up where it can, or, with `by_slice`, pushes one by one.
  void Share(std::vector<uint32_t> ranks, std::vector<int64_t> slices, bool by_slice);
  // Who does by the newest assignment, and how many each has.
  const std::vector<uint32_t>& sharing() const { return sharing_; }
  const std::vector<int64_t>& slices_of_each() const { return slices_of_each_; }
  bool by_slice() const { return by_slice_; }

  // To all that have entered and stay. Sent ahead: in `step - 1`, when all of its losses are in.
  void Order(int64_t step);
  // Somebody else is to compute what is missing of a subtree: before anything else, and beside
  // whoever has it now. False: the member has no gradient buffer free, or does not have
  // the weights of this step.
  bool Redo(uint32_t rank, int64_t step, const TreeNode& node, std::span<const uint32_t> chunks);

  // The member's work is not wanted any more: nothing that it sends counts until it has entered
  // again. What has come stays.
  void Fence(uint32_t rank);
  // The member is gone, and its gradient buffers with it. What has come stays, too.
  void Disown(uint32_t rank) { leases_.Disown(rank); }
  void MarkLate(const Lease& lease) { leases_.MarkLate(lease.id); }
  // Those that have not brought all of their own part of this step, although it is complete: others
  // were faster. Who helped in vain goes on: it reads W(step) until it has done with that, and no
  // update overwrites W(step) before its own losses of step + 1.
  // … and, before the first update of this step, those that still lack losses of their own part:
  // they may read weights that are overwritten next. Who they were.
  std::vector<uint32_t> FenceBehind(int64_t step);
  // Who they were.
  std::vector<uint32_t> FenceLate(int64_t step);
  // It gets weights from W(version) on, and the assignment.
  void Admit(uint32_t rank, int64_t version);

  // What came under a lease of this step. Null: it counts for nothing, for the reason `why`.
  const Lease* LeaseOf(uint32_t rank, int64_t step, const wire::SliceLoss& loss,
                       std::string& why) const;
  const Lease* LeaseOf(uint32_t rank, int64_t step, const wire::GradientPart& part,
                       std::string& why) const;
  void Bring(const Lease& lease, uint32_t chunk) { leases_.Bring(lease.id, chunk); }
  void AddLoss(const Lease& lease, int64_t slice) { leases_.AddLoss(lease.id, slice); }

  void Forgive(std::chrono::steady_clock::duration gap) { leases_.Forgive(gap); }
  // Leases of steps before this one have ended.
  void BeginStep(int64_t step) { leases_.Forget(step); }
  void SendAssignment(uint32_t rank);
  const Leases& leases() const { return leases_; }

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  Membership& members_;
  StepPlan plan_;
  Assignment assignment_;
  std::optional<std::vector<std::vector<TreeNode>>> next_;
  std::vector<uint32_t> sharing_;
  std::vector<int64_t> slices_of_each_;
  bool by_slice_ = false;
  Leases leases_;
};

}  // namespace muster
