// Work that nobody does any more is given to others.
#include <algorithm>
#include <set>

#include "ps/coordinator.h"

namespace muster {

void Coordinator::Repair() {
  repair_due_ = false;
  if (done_ || (phase_ != Phase::kTraining && phase_ != Phase::kFinishing)) return;
  // Who entered for the next step can do nothing of this one. If nobody else is left but who is
  // late, they begin anew, with W(step_).
  const std::set<uint32_t> late = Late();
  const auto has_version = [this](uint32_t rank) { return members_.HasVersion(rank, step_); };
  std::vector<uint32_t> entered = members_.Entered();
  const bool goes_on = std::ranges::any_of(
      entered, [&](uint32_t rank) { return has_version(rank) && !late.contains(rank); });
  std::erase_if(entered, has_version);
  for (const uint32_t rank : goes_on ? std::vector<uint32_t>{} : entered) {
    work_.Fence(rank);
    Changed(events::MemberChange::FENCED, rank,
            "it is to help in a step that it was not to take part in", 0, evaluator_.Drop(rank));
  }
  if (held_ || !goes_on) {
    for (const uint32_t rank : members_.ReadyToEnter()) EnterNow(rank);
  }
  if (held_ == step_) {
    OrderNow();
  } else if (held_) {
    Order(*held_);
  }
  GiveOutSlices();
  if (EnterToHelp()) GiveOutSlices();
  GiveOutBlocks();
  ReleaseLeaving();
}

// Whose work others are to do, too.
std::set<uint32_t> Coordinator::Late() const {
  std::set<uint32_t> late;
  work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
    if (lease.late && !lease.brought()) late.insert(lease.rank);
  });
  if (evaluator_.running()) {
    late.insert(evaluator_.current().late().begin(), evaluator_.current().late().end());
  }
  return late;
}

bool Coordinator::Redo(uint32_t rank, const TreeNode& node) {
  const std::vector<uint32_t> missing = aggregator_.MissingChunks(node);
  return !missing.empty() && work_.Redo(rank, step_, node, missing);
}

bool Coordinator::IsMissing(int64_t slice) const {
  return !losses_.Has(slice) ||
         !aggregator_.MissingChunks({0, static_cast<uint32_t>(slice)}).empty();
}

int64_t Coordinator::OpenSlices(uint32_t rank) const {
  int64_t slices = 0;
  for (const int64_t step : {step_, step_ + 1}) {
    work_.leases().ForEachOpen(step, [&](const Lease& lease) {
      if (lease.rank != rank || lease.brought()) return;
      slices += Covers(lease.node, plan_.slices).size();
    });
  }
  return slices;
}

// Slices are given to who has reported all losses of its own, one piece at a time. So whoever is
// first takes the next one, and a newcomer finds some to do; nobody waits for an order, since
// backward follows the loss.
void Coordinator::GiveOutSlices() {
  repair_at_.reset();
  orphans_wait_ = false;
  if (phase_ != Phase::kTraining || ordered_ < step_) return;
  std::vector<uint32_t> helpers = members_.Entered();
  std::erase_if(helpers, [this](uint32_t rank) { return !members_.HasVersion(rank, step_); });
  work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
    if (lease.late && !lease.brought()) std::erase(helpers, lease.rank);
  });
  const LostWork::Step step{
      .slices = plan_.slices,
      .orphaned =
          [this](int64_t slice) {
            if (work_.leases().Holds(step_, slice, plan_.slices) || !IsMissing(slice)) return false;
            return !IsHeldBack({WorkItem::Kind::kSlice, slice});
          },
      .is_whole = [this](const TreeNode& node) { return aggregator_.IsWhole(node); }};
  const std::vector<TreeNode> pieces = lost_work_.Pieces(step, helpers.size());
  std::erase_if(helpers, [this](uint32_t rank) {
    return work_.leases().Computes(rank, step_, plan_.slices);
  });
  for (const TreeNode& piece : pieces) {
    const auto helper =
        std::ranges::find_if(helpers, [&](uint32_t rank) { return GiveAgain(rank, piece); });
    if (helper == helpers.end()) {
      orphans_wait_ = true;
    } else {
      helpers.erase(helper);
    }
  }
}

bool Coordinator::IsHeldBack(const WorkItem& item) {
  const auto until = lost_work_.HeldBackUntil(item);
  if (until && (!repair_at_ || *until < *repair_at_)) repair_at_ = until;
  return until.has_value();
}

// W(step_), which is there: nobody is at the blocks of a later one.
bool Coordinator::Evaluates() const {
  return evaluator_.running() && evaluator_.current().version() <= step_;
}

bool Coordinator::GiveAgain(uint32_t rank, const TreeNode& piece) {
  if (work_.leases().Overlaps(rank, step_, piece)) return false;
  std::vector<uint32_t> chunks = aggregator_.MissingChunks(piece);
  if (chunks.empty()) chunks = {0};  // its losses are missing
  if (!work_.Redo(rank, step_, piece, chunks)) return false;
  shares_.Disturbed(rank, step_ + 1);  // it may be in that step already
  return true;
}

// Somebody who waits for the next step helps in this one: all of W(step_) is there still. To who
// does not see it where it lies it would have to be sent, which may take longer than the step.
bool Coordinator::EnterToHelp() {
  if (!orphans_wait_) return false;
  std::vector<uint32_t> newcomers = members_.ReadyToEnter();
  std::erase_if(newcomers, [this](uint32_t rank) { return !members_.SharesMemory(rank); });
  for (const uint32_t rank : newcomers) EnterNow(rank);
  return !newcomers.empty();
}

void Coordinator::HelpIsFree(uint32_t rank) {
  if (orphans_wait_ && !work_.leases().Computes(rank, step_, plan_.slices)) repair_due_ = true;
}

void Coordinator::GiveOutBlocks() {
  if (!evaluator_.running()) return;
  // Who has not got these weights cannot evaluate them.
  std::vector<uint32_t> helpers = members_.Staying();
  if (helpers.empty()) helpers = members_.Entered();
  const Evaluation& evaluation = evaluator_.current();
  std::erase_if(helpers,
                [&](uint32_t rank) { return !members_.HasVersion(rank, evaluation.version()); });
  const auto is_late = [&](uint32_t rank) { return evaluation.late().contains(rank); };
  if (std::ranges::all_of(helpers, is_late)) {  // there is nobody else
    for (const uint32_t rank : helpers) evaluator_.WaitForAfterAll(rank);
  }
  std::erase_if(helpers, is_late);
  const auto how = [this](int64_t block) {
    const WorkItem item{WorkItem::Kind::kBlock, block};
    if (!Evaluates() || !lost_work_.Suspects(item)) return Evaluator::Give::kWithOthers;
    return IsHeldBack(item) ? Evaluator::Give::kLater : Evaluator::Give::kAlone;
  };
  for (const auto& [rank, order] : evaluator_.GiveOrphans(helpers, how)) {
    wire::ServerMessage message = members_.NewMessage();
    *message.mutable_evaluate() = order;
    members_.Send(rank, message);
  }
}

void Coordinator::ReleaseLeaving() {
  for (const uint32_t rank : members_.Seated()) {
    const Member& member = members_.roster().at(rank);
    if (!member.leaving || member.released) continue;
    if (!member.entered) {  // fenced while it did its last part
      members_.Release(rank);
      continue;
    }
    if (work_.leases().IsBusy(rank)) continue;
    if (evaluator_.running() && std::ranges::count(evaluator_.current().MissingRanks(), rank) > 0) {
      continue;
    }
    members_.Release(rank);
  }
}

}  // namespace muster
