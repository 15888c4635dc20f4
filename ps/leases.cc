#include "ps/leases.h"

#include <algorithm>
#include <set>

namespace muster {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

}  // namespace

Lease& Leases::Add(uint32_t rank, int64_t step, const TreeNode& node, uint32_t arena) {
  return leases_.emplace_back(
      Lease{.id = next_id_++, .rank = rank, .step = step, .node = node, .arena = arena});
}

uint64_t Leases::Give(uint32_t rank, int64_t step, const std::vector<TreeNode>& nodes) {
  const uint64_t first = next_id_;
  uint32_t arena = 0;
  for (const TreeNode& node : nodes) {
    Lease& lease = Add(rank, step, node, arena++);
    lease.pending.assign(chunks_, true);
    lease.pending_count = chunks_;
  }
  return first;
}

const Lease& Leases::GiveAgain(uint32_t rank, int64_t step, const TreeNode& node, uint32_t arena,
                               std::span<const uint32_t> chunks) {
  Lease& lease = Add(rank, step, node, arena);
  lease.again = true;
  lease.pending.assign(chunks_, false);
  for (const uint32_t chunk : chunks) lease.pending[chunk] = true;
  lease.pending_count = chunks.size();
  return lease;
}

const Lease* Leases::Find(uint64_t id, uint32_t rank) const {
  if (leases_.empty() || id < leases_.front().id || id >= next_id_) return nullptr;
  const Lease& lease = leases_[id - leases_.front().id];
  return lease.open && lease.rank == rank ? &lease : nullptr;
}

bool Leases::Bring(uint64_t id, uint32_t chunk) {
  Lease& lease = leases_[id - leases_.front().id];
  if (!lease.pending[chunk]) return false;
  lease.pending[chunk] = false;
  lease.accepted = true;
  --lease.pending_count;
  return true;
}

void Leases::CloseAll(uint32_t rank) {
  for (Lease& lease : leases_) {
    if (lease.rank == rank) lease.open = false;
  }
}

// Steps are given out in order, but for what is given again: such a lease goes with the next step.
void Leases::Forget(int64_t before) {
  while (!leases_.empty() && leases_.front().step < before) leases_.pop_front();
  for (Lease& lease : leases_) {
    if (lease.step < before) lease.open = false;
  }
}

void Leases::Disown(uint32_t rank) {
  CloseAll(rank);
  for (Lease& lease : leases_) {
    if (lease.rank == rank) lease.rank = kNobody;
  }
}

bool Leases::Holds(int64_t step, int64_t slice, int64_t slices) const {
  return std::ranges::any_of(leases_, [&](const Lease& lease) {
    const Range covered = Covers(lease.node, slices);
    return lease.open && !lease.late && !lease.brought() && lease.step == step &&
           covered.begin <= slice && slice < covered.end;
  });
}

bool Leases::Overlaps(uint32_t rank, int64_t step, const TreeNode& node) const {
  return std::ranges::any_of(leases_, [&](const Lease& lease) {
    return lease.open && !lease.brought() && lease.rank == rank && lease.step == step &&
           Overlap(lease.node, node);
  });
}

int64_t Leases::HeldSlices(int64_t step, int64_t slices) const {
  int64_t held = 0;
  ForEachOpen(step, [&](const Lease& lease) {
    if (!lease.late) held += Covers(lease.node, slices).size();
  });
  return held;
}

int64_t Leases::OwnLosses(uint32_t rank, int64_t step) const {
  int64_t losses = 0;
  for (const Lease& lease : leases_) {
    if (lease.rank == rank && lease.step == step && !lease.again)
      losses += static_cast<int64_t>(lease.losses.size());
  }
  return losses;
}

bool Leases::Computes(uint32_t rank, int64_t step, int64_t slices) const {
  return std::ranges::any_of(leases_, [&](const Lease& lease) {
    return lease.open && !lease.brought() && lease.rank == rank && lease.step == step &&
           std::ssize(lease.losses) < Covers(lease.node, slices).size();
  });
}

bool Leases::Owes(uint32_t rank, int64_t step) const {
  return std::ranges::any_of(leases_, [&](const Lease& lease) {
    return lease.open && lease.rank == rank && lease.step == step && !lease.brought();
  });
}

bool Leases::IsBusy(uint32_t rank) const {
  return std::ranges::any_of(leases_, [&](const Lease& lease) {
    return lease.open && lease.rank == rank && !lease.brought();
  });
}

void Leases::Forgive(std::chrono::steady_clock::duration gap) {
  for (Lease& lease : leases_) lease.given += gap;
}

std::optional<uint32_t> Leases::FreeArena(uint32_t rank, int64_t step, uint32_t arenas) const {
  for (uint32_t arena = 0; arena < arenas; ++arena) {
    const bool taken = std::ranges::any_of(leases_, [&](const Lease& lease) {
      return lease.rank == rank && lease.arena == arena && lease.step == step &&
             (lease.open || lease.accepted);
    });
    if (!taken) return arena;
  }
  return std::nullopt;
}

std::vector<uint32_t> Leases::LateRanks(int64_t step, Whose whose) const {
  std::set<uint32_t> late;
  ForEachOpen(step, [&](const Lease& lease) {
    const bool counts = whose == Whose::kAny || !lease.again;
    if (lease.pending_count > 0 && counts) late.insert(lease.rank);
  });
  return {late.begin(), late.end()};
}

}  // namespace muster
