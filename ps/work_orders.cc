#include "ps/work_orders.h"

#include <fmt/core.h>

#include <set>

#include "common/base/error.h"
#include "common/link/wire_values.h"
#include "common/plan/split.h"

namespace muster {

void WorkOrders::Begin(const StepPlan& plan, int64_t step) {
  plan_ = plan;
  assignment_ = AssignEvenly(plan.slices, members_.roster().workers());
  assignment_.nodes.resize(members_.size());
  assignment_.from_step = step;
  for (uint32_t rank = 0; rank < members_.roster().workers(); ++rank) sharing_.push_back(rank);
  slices_of_each_ = EvenSizes(plan.slices, sharing_.size());
}

void WorkOrders::Assign(std::vector<std::vector<TreeNode>> nodes) {
  MUSTER_CHECK(nodes.size() == members_.size());
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    MUSTER_CHECK(nodes[rank].size() <= members_.ArenasOf(rank));
  }
  next_ = std::move(nodes);
}

void WorkOrders::Share(std::vector<uint32_t> ranks, std::vector<int64_t> slices, bool by_slice) {
  MUSTER_CHECK(ranks.size() == slices.size());
  std::vector<std::vector<TreeNode>> each = NeighbouringShares(slices, by_slice);
  std::vector<std::vector<TreeNode>> shares(members_.size());
  for (size_t i = 0; i < ranks.size(); ++i) shares[ranks[i]] = std::move(each[i]);
  sharing_ = std::move(ranks);
  slices_of_each_ = std::move(slices);
  by_slice_ = by_slice;
  Assign(std::move(shares));
}

void WorkOrders::Order(int64_t step) {
  if (next_) {
    ++assignment_.id;
    assignment_.from_step = step;
    assignment_.nodes = std::move(*next_);
    next_.reset();
    for (const uint32_t rank : members_.Staying()) SendAssignment(rank);
  }
  for (const uint32_t rank : members_.Staying()) {
    wire::ServerMessage message = members_.NewMessage();
    wire::Train& train = *message.mutable_train();
    train.set_step(step);
    train.set_samples(plan_.At(step).samples);
    train.set_assignment(assignment_.id);
    train.set_lease(leases_.Give(rank, step, assignment_.nodes[rank]));
    members_.Send(rank, message);
  }
}

void WorkOrders::SendAssignment(uint32_t rank) {
  wire::ServerMessage message = members_.NewMessage();
  *message.mutable_assignment() = AssignmentOf(assignment_, rank);
  members_.Send(rank, message);
}

bool WorkOrders::Redo(uint32_t rank, int64_t step, const TreeNode& node,
                      std::span<const uint32_t> chunks) {
  if (!members_.HasVersion(rank, step)) return false;
  const auto arena = leases_.FreeArena(rank, step, members_.ArenasOf(rank));
  if (!arena) return false;
  wire::ServerMessage message = members_.NewMessage();
  wire::Redo& redo = *message.mutable_redo();
  redo.set_lease(leases_.GiveAgain(rank, step, node, *arena, chunks).id);
  redo.set_step(step);
  redo.set_samples(plan_.At(step).samples);
  *redo.mutable_subtree() = SubtreeOf(node);
  redo.set_arena(*arena);
  redo.mutable_chunk()->Assign(chunks.begin(), chunks.end());
  members_.Send(rank, message);
  return true;
}

void WorkOrders::Fence(uint32_t rank) {
  leases_.CloseAll(rank);
  members_.Fence(rank);
}

std::vector<uint32_t> WorkOrders::FenceLate(int64_t step) {
  std::vector<uint32_t> late = leases_.LateRanks(step, Leases::Whose::kOwn);
  for (const uint32_t rank : late) Fence(rank);
  return late;
}

std::vector<uint32_t> WorkOrders::FenceBehind(int64_t step) {
  std::set<uint32_t> behind;
  leases_.ForEachOpen(step, [&](const Lease& lease) {
    if (!lease.again && std::ssize(lease.losses) < Covers(lease.node, plan_.slices).size())
      behind.insert(lease.rank);
  });
  for (const uint32_t rank : behind) Fence(rank);
  return {behind.begin(), behind.end()};
}

void WorkOrders::Admit(uint32_t rank, int64_t version) {
  members_.Enter(rank, version);
  SendAssignment(rank);
}

const Lease* WorkOrders::LeaseOf(uint32_t rank, int64_t step, const wire::SliceLoss& loss,
                                 std::string& why) const {
  const Lease* const lease = leases_.Find(loss.lease(), rank);
  if (lease != nullptr && lease->step == step) {
    const Range slices = Covers(lease->node, plan_.slices);
    const int64_t slice = loss.slice();
    if (slices.begin <= slice && slice < slices.end) return lease;
  }
  why = fmt::format("a loss of slice {} under lease {}, which it does not have", loss.slice(),
                    loss.lease());
  return nullptr;
}

const Lease* WorkOrders::LeaseOf(uint32_t rank, int64_t step, const wire::GradientPart& part,
                                 std::string& why) const {
  const TreeNode node = NodeOf(part.subtree());
  const Lease* const lease = leases_.Find(part.lease(), rank);
  if (lease == nullptr || lease->step != step || lease->node != node ||
      lease->arena != part.arena()) {
    why = fmt::format("subtree {}.{} in arena {} under lease {}, which it does not have",
                      node.level, node.index, part.arena(), part.lease());
  } else if (part.chunk() >= lease->pending.size()) {
    why = fmt::format("chunk {} of {}", part.chunk(), lease->pending.size());
  } else if (!lease->pending[part.chunk()]) {
    why = fmt::format("chunk {} again", part.chunk());
  } else {
    return lease;
  }
  return nullptr;
}

}  // namespace muster
