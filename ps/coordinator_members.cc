// Members that are lost, late, leave or come in the middle of a run, and what becomes of their work
// (PROTOCOL.md, "In the middle of a run").
#include <fmt/core.h>

#include <algorithm>

#include "common/base/join.h"
#include "common/base/log.h"
#include "ps/coordinator.h"

namespace muster {

// ---------------------------------------------------------------------------------- coming

void Coordinator::OnJoined(uint32_t rank) {
  members_.Welcome(rank);
  if (phase_ == Phase::kPreparing) SendWeights(rank);  // else once it is ready
}

void Coordinator::OnReady(uint32_t rank) {
  members_.OnReady(rank);
  StartIfReady();
  repair_due_ = recovers_;
}

void Coordinator::StartIfReady() {
  if (phase_ != Phase::kPreparing || !members_.Start()) return;
  phase_ = Phase::kTraining;
  const auto workers = static_cast<uint32_t>(members_.Seated().size());
  LogInfo("all {} workers are ready: {} steps of {} samples", workers, plan_.total_steps,
          plan_.global_batch);
  progress_.Begin(plan_, members_.size());
  progress_.SetWorkers(workers);
  board_.Begin(step_);
  watch_.Begin(plan_, work_.assignment());
  if (evaluate_only_) return EvaluateOnly();
  if (resumed_) return GoOn();
  Order(step_);
  BeginStep(step_);
}

// W(step_) whole, and of the next version what is there already: the rest of that comes with the
// others' share. Of an average that is evaluated, the same.
void Coordinator::SendWeights(uint32_t rank) {
  members_.Enter(rank, step_);
  const bool evaluates = phase_ != Phase::kPreparing && evaluator_.running();
  for (size_t c = 0; c < aggregator_.chunks().size(); ++c) {
    const Chunk& chunk = aggregator_.chunks()[c];
    for (const int64_t version : {step_, step_ + 1}) {
      if (version > step_ && !published_[c]) break;
      wire::ServerMessage message = WeightsMessage(version, c);
      members_.Send(rank, message, variables_.WireWeights(version, chunk));
      if (!evaluates || evaluator_.current().version() != version) continue;
      if (!evaluator_.AverageIsDue(version)) continue;
      message.mutable_weights_chunk()->set_average(true);
      members_.Send(rank, message, variables_.WireAverage(chunk));
    }
  }
}

// In the middle of a step, of which it can take a part.
void Coordinator::EnterNow(uint32_t rank) {
  SendWeights(rank);
  work_.SendAssignment(rank);
  Changed(events::MemberChange::JOINED, rank, "");
}

// ---------------------------------------------------------------------------------- going

void Coordinator::OnLost(uint32_t rank, ExitCode code, const std::string& why) {
  const std::string text =
      fmt::format("{} was lost at step {}: {}", members_.Name(rank), step_, why);
  if (!recovers_) return failure_.Set({code, rank, text});
  if (done_) return members_.Vacate(rank, text);
  if (phase_ == Phase::kTraining && KillsWorkers(rank, why)) return;
  const int64_t slices = OpenSlices(rank), blocks = evaluator_.Drop(rank);
  work_.Disown(rank);
  members_.Vacate(rank, text);
  watch_.Lost(rank);
  repair_due_ = true;
  Changed(events::MemberChange::LOST, rank, why, slices, blocks);
  if (phase_ == Phase::kGathering) GiveUpWaitingFor(rank);
  StartIfReady();
}

// Nobody will take its place: the others start without it.
void Coordinator::GiveUpWaitingFor(uint32_t rank) {
  if (config_.cluster().on_lost_worker() != config::Cluster::CONTINUE) return;
  const size_t others = members_.Seated().size() + members_.roster().MissingRanks().size() - 1;
  if (others < LeastWorkers()) return;
  members_.GiveUp(rank);
  if (members_.roster().Complete()) Begin();
}

// True: a slice that ends whoever computes it has ended the run.
bool Coordinator::KillsWorkers(uint32_t rank, const std::string& why) {
  std::vector<Lease> leases;
  work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
    if (lease.rank == rank) leases.push_back(lease);
  });
  // Others' work comes before its own.
  std::ranges::stable_sort(leases, std::ranges::greater(), &Lease::again);
  const auto deadly =
      lost_work_.OnLost(leases, plan_.slices, [this](int64_t slice) { return IsMissing(slice); });
  if (!deadly) return false;
  const Range places = plan_.Slice(plan_.At(step_), *deadly);
  failure_.Set(
      {ExitCode::kPeerFailed, rank,
       fmt::format("slice {} of step {} (places {} to {} of epoch {}) has ended {} workers "
                   "that computed it; the last was {}: {}",
                   *deadly, step_, places.begin, places.end - 1, plan_.At(step_).epoch,
                   LostWork::kMostKills, members_.Name(rank), why)});
  return true;
}

void Coordinator::OnLeave(uint32_t rank) {
  if (!recovers_) return OnLost(rank, ExitCode::kPeerFailed, "it left");
  members_.OnLeave(rank);
  LogInfo("{} leaves when it has done its part", members_.Name(rank));
  if (phase_ <= Phase::kPreparing) return OnLost(rank, ExitCode::kPeerFailed, "it left");
  if (!members_.entered(rank)) members_.Release(rank);
  repair_due_ = true;
}

void Coordinator::OnLeft(uint32_t rank) {
  const int64_t slices = OpenSlices(rank), blocks = evaluator_.Drop(rank);
  work_.Disown(rank);
  Changed(events::MemberChange::LEFT, rank, "", slices, blocks);
  members_.Vacate(rank, "it has left");
  watch_.Lost(rank);
  repair_due_ = recovers_;
}

void Coordinator::FenceAll(const std::vector<uint32_t>& ranks) {
  for (const uint32_t rank : ranks) {
    const int64_t blocks = evaluator_.Drop(rank);
    watch_.Lost(rank);
    Changed(events::MemberChange::FENCED, rank, "it was late, and others have done its work", 0,
            blocks);
  }
  if (!ranks.empty()) repair_due_ = recovers_;
}

// ---------------------------------------------------------------------------------- orders

size_t Coordinator::LeastWorkers() const {
  return std::max<size_t>(1, config_.cluster().min_workers());
}

// Held back while there are too few.
void Coordinator::Order(int64_t step) {
  if (recovers_ && members_.Staying().size() < LeastWorkers()) {
    held_ = step;
    return;
  }
  held_.reset();
  if (recovers_ && work_.ShareAmongStaying()) {
    progress_.SetWorkers(static_cast<uint32_t>(members_.Staying().size()));
  }
  work_.Order(step);
  ordered_ = step;
}

// The step that has begun, in which nothing has come.
void Coordinator::OrderNow() {
  Order(step_);
  deadlines_.Restart();
  if (expected_ == work_.assignment().id) return;
  ExpectShares();
  aggregator_.BeginStep(step_);
}

void Coordinator::ExpectShares() {
  if (expected_ == work_.assignment().id) return;
  expected_ = work_.assignment().id;
  aggregator_.Expect(work_.assignment());
  watch_.Begin(plan_, work_.assignment());
}

bool Coordinator::Starves() const {
  if (!recovers_ || done_) return false;
  if (phase_ == Phase::kPreparing) return members_.Seated().empty();
  if (phase_ == Phase::kGathering) return false;
  return held_ == step_ || members_.Entered().empty();
}

// ---------------------------------------------------------------------------------- others' work

void Coordinator::Repair() {
  repair_due_ = false;
  if (done_ || (phase_ != Phase::kTraining && phase_ != Phase::kFinishing)) return;
  if (held_ || members_.Entered().empty()) {
    for (const uint32_t rank : members_.ReadyToEnter()) EnterNow(rank);
  }
  if (held_ == step_) {
    OrderNow();
  } else if (held_) {
    Order(*held_);
  }
  GiveOutSlices();
  GiveOutBlocks();
  ReleaseLeaving();
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

void Coordinator::GiveOutSlices() {
  if (phase_ != Phase::kTraining || ordered_ < step_) return;
  std::vector<uint32_t> helpers = members_.Entered();
  work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
    if (lease.late && !lease.brought()) std::erase(helpers, lease.rank);
  });
  if (helpers.empty()) return;
  const LostWork::Step step{
      .slices = plan_.slices,
      .orphaned =
          [this](int64_t slice) {
            return !work_.leases().Holds(step_, slice, plan_.slices) && IsMissing(slice);
          },
      .is_whole = [this](const TreeNode& node) { return aggregator_.IsWhole(node); }};
  for (const TreeNode& piece : lost_work_.Pieces(step, helpers.size())) {
    (void)Give(piece, helpers);  // each has room for all slices of a batch
  }
}

// To the one with the least to do.
bool Coordinator::Give(const TreeNode& piece, const std::vector<uint32_t>& helpers) {
  std::vector<uint32_t> chunks = aggregator_.MissingChunks(piece);
  if (chunks.empty()) chunks = {0};  // its losses are missing
  std::vector<std::pair<int64_t, uint32_t>> by_load;
  for (const uint32_t rank : helpers) {
    int64_t load = 0;
    work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
      if (lease.rank == rank && !lease.brought()) {
        load += Covers(lease.node, plan_.slices).size();
      }
    });
    by_load.emplace_back(load, rank);
  }
  std::ranges::sort(by_load);
  return std::ranges::any_of(by_load, [&](const auto& helper) {
    return !work_.leases().Overlaps(helper.second, step_, piece) &&
           work_.Redo(helper.second, step_, piece, chunks);
  });
}

void Coordinator::GiveOutBlocks() {
  if (!evaluator_.running()) return;
  // Who has not got these weights cannot evaluate them.
  std::vector<uint32_t> helpers = members_.Staying();
  if (helpers.empty()) helpers = members_.Entered();
  std::erase_if(helpers, [this](uint32_t rank) {
    return !members_.HasVersion(rank, evaluator_.current().version());
  });
  for (const auto& [rank, order] : evaluator_.GiveOrphans(helpers)) {
    wire::ServerMessage message = members_.NewMessage();
    *message.mutable_evaluate() = order;
    members_.Send(rank, message);
  }
}

void Coordinator::ReleaseLeaving() {
  for (const uint32_t rank : members_.Entered()) {
    const Member& member = members_.roster().at(rank);
    if (!member.leaving || member.released || work_.leases().IsBusy(rank)) continue;
    if (evaluator_.running() && std::ranges::count(evaluator_.current().MissingRanks(), rank) > 0) {
      continue;
    }
    members_.Release(rank);
  }
}

void Coordinator::Changed(events::MemberChange::Kind kind, uint32_t rank, const std::string& why,
                          int64_t slices, int64_t blocks) {
  const Member& member = members_.roster().at(rank);
  events::MemberChange change;
  *change.mutable_at() = progress_.PositionLine().at();
  change.set_kind(kind);
  change.set_rank(rank);
  change.set_host(member.host);
  change.set_pid(member.pid);
  change.set_why(why);
  change.set_slices(slices);
  change.set_blocks(blocks);
  const bool counts = kind == events::MemberChange::LEFT;  // it is still seated
  change.set_workers(static_cast<int64_t>(members_.Seated().size()) - (counts ? 1 : 0));
  if (kind == events::MemberChange::LOST) last_loss_ = TextOf(change);
  changes_.Tell(std::move(change));
}

}  // namespace muster
