// Members that are lost, late, leave or come in the middle of a run, and what becomes of their work
// (PROTOCOL.md, "In the middle of a run").
#include <fmt/core.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/base/text.h"
#include "ps/coordinator.h"

namespace muster {
namespace {

// Slices are pushed one by one …
constexpr double kLongStepSeconds = 1;          // … where steps take that long, …
constexpr size_t kMostBytesBySlice = 64 << 20;  // … the gradients of all slices have so many bytes
constexpr size_t kMostPartsBySlice = 4096;      // … and parts at most.

// Blocks come in the order in which they are evaluated: a worker was lost at one of the first that
// are missing, after those whose results were lost with it. Over a wire more of them wait to leave.
constexpr size_t kMostBlocks = 16, kMostBlocksOverAWire = 256;

}  // namespace

// ---------------------------------------------------------------------------------- coming

void Coordinator::OnJoined(uint32_t rank) {
  members_.Welcome(rank);
  if (phase_ == Phase::kPreparing) SendWeights(rank);  // else once it is ready
}

std::string Coordinator::OnReady(uint32_t rank, const wire::Ready& ready) {
  if (ready.has_convolutions()) {
    const auto [refusal, warning] =
        convolutions_.Take(members_.roster().at(rank).arithmetic, Printable(ready.convolutions()));
    if (!refusal.empty()) return refusal;
    if (!warning.empty()) {
      LogWarning("{}", warning);
      reporter_.Warning(warning);
    }
  }
  members_.OnReady(rank);
  StartIfReady();
  repair_due_ = recovers_;
  return "";
}

void Coordinator::StartIfReady() {
  if (phase_ != Phase::kPreparing || !members_.Start()) return;
  phase_ = Phase::kTraining;
  const auto workers = static_cast<uint32_t>(members_.Seated().size());
  LogInfo("all {} workers are ready: {} steps of {} samples", workers, plan_.total_steps,
          plan_.global_batch);
  progress_.Begin(plan_, members_.roster().workers(), members_.size());
  progress_.SetWorkers(workers);
  board_.Begin(step_);
  watch_.Begin(plan_, work_.assignment());
  StartRun();
  AdmitAll();
}

void Coordinator::StartRun() {
  if (evaluate_only_) return EvaluateOnly();
  if (resumed_) return GoOn();
  reporter_.GoOn(step_);  // it may begin anew, since a server was lost before its first checkpoint
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
      if (!config_.evaluation().use_ema()) continue;
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
  if (phase_ >= Phase::kTraining && KillsWorkers(rank, why)) return;
  const int64_t slices = OpenSlices(rank), blocks = evaluator_.Drop(rank);
  work_.Disown(rank);
  shares_.Forget(rank);
  members_.Vacate(rank, text);
  watch_.Lost(rank);
  repair_due_ = true;
  deadlines_.Restart();  // the others have more to do
  Changed(events::MemberChange::LOST, rank, why, slices, blocks);
  if (phase_ == Phase::kGathering) GiveUpWaitingFor(rank);
  StartIfReady();
  OnWaits();
}

void Coordinator::OnWaits() {
  if (phase_ == Phase::kPreparing && members_.Seated().empty()) AdmitAll();
}

// Those that the start did not wait for.
void Coordinator::AdmitAll() {
  for (const uint32_t rank : members_.Admit()) OnJoined(rank);
}

// Nobody will take its place: the others start without it.
void Coordinator::GiveUpWaitingFor(uint32_t rank) {
  if (config_.cluster().on_lost_worker() != config::Cluster::CONTINUE) return;
  if (rank >= members_.roster().workers()) return;  // nobody has waited for it
  const size_t others = members_.Seated().size() + members_.roster().MissingRanks().size() - 1;
  if (others < LeastWorkers()) return;
  members_.GiveUp(rank);
  if (members_.roster().Complete()) Begin();
}

// The first thing that it had not done, in the order in which a worker does them: slices of others
// before all else, then its share of the evaluation of W(step_), which was ordered before this
// step, then its own slices, and last the blocks of others.
std::vector<WorkItem> Coordinator::WasAt(uint32_t rank) const {
  std::vector<WorkItem> items;
  const auto slices = [&](bool again) {
    work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
      if (!items.empty() || lease.rank != rank || lease.again != again) return;
      const Range range = Covers(lease.node, plan_.slices);
      for (int64_t slice = range.begin; slice < range.end; ++slice) {
        if (IsMissing(slice)) items.push_back({WorkItem::Kind::kSlice, slice});
      }
    });
  };
  const auto blocks = [&](bool own) {
    if (!items.empty() || !Evaluates()) return;
    const Range share = evaluator_.current().BlocksOf(rank);
    const size_t most = members_.SharesMemory(rank) ? kMostBlocks : kMostBlocksOverAWire;
    for (const int64_t block : evaluator_.current().MissingOf(rank)) {
      const bool is_own = share.begin <= block && block < share.end;
      if (is_own == own) items.push_back({WorkItem::Kind::kBlock, block});
    }
    // Who has one that is suspected has nothing else, but for what it was given since.
    const auto suspected = [&](const WorkItem& item) { return lost_work_.Suspects(item); };
    std::stable_partition(items.begin(), items.end(), suspected);
    if (items.size() > most) items.resize(most);
  };
  const bool trains = phase_ == Phase::kTraining;
  if (trains) slices(true);
  blocks(true);
  if (trains) slices(false);
  blocks(false);
  return items;
}

// True: a slice or a block that ends whoever does it has ended the run.
bool Coordinator::KillsWorkers(uint32_t rank, const std::string& why) {
  const auto deadly = lost_work_.OnLost(WasAt(rank));
  if (!deadly) return false;
  failure_.Set({ExitCode::kPeerFailed, rank,
                fmt::format("{} has ended {} workers that computed it; the last was {}: {}",
                            NameOf(*deadly), LostWork::kMostKills, members_.Name(rank), why)});
  return true;
}

std::string Coordinator::NameOf(const WorkItem& item) const {
  if (item.kind == WorkItem::Kind::kBlock) {
    const Evaluation& evaluation = evaluator_.current();
    const Range samples = evaluation.SamplesOf(item.index);
    return fmt::format("block {} of the evaluation of step {} (samples {} to {} of the {} set)",
                       item.index, step_, samples.begin, samples.end - 1,
                       SetName(evaluation.set()));
  }
  const Range places = plan_.Slice(plan_.At(step_), item.index);
  return fmt::format("slice {} of step {} (places {} to {} of epoch {})", item.index, step_,
                     places.begin, places.end - 1, plan_.At(step_).epoch);
}

void Coordinator::OnLeave(uint32_t rank) {
  if (!recovers_) return OnLost(rank, ExitCode::kPeerFailed, "it left");
  if (members_.roster().at(rank).released) return;  // it says so again, since it was fenced
  members_.OnLeave(rank);
  LogInfo("{} leaves when it has done its part", members_.Name(rank));
  if (phase_ <= Phase::kPreparing) return OnLost(rank, ExitCode::kPeerFailed, "it left");
  if (!members_.entered(rank)) members_.Release(rank);
  repair_due_ = true;
}

void Coordinator::OnLeft(uint32_t rank) {
  const int64_t slices = OpenSlices(rank), blocks = evaluator_.Drop(rank);
  work_.Disown(rank);
  shares_.Forget(rank);
  Changed(events::MemberChange::LEFT, rank, "", slices, blocks);
  members_.Vacate(rank, "it has left");
  watch_.Lost(rank);
  repair_due_ = recovers_;
}

void Coordinator::FenceAll(const std::vector<uint32_t>& ranks) {
  for (const uint32_t rank : ranks) {
    const int64_t blocks = evaluator_.Drop(rank);
    watch_.Lost(rank);
    shares_.WasLate(rank, deadlines_.waited_since_restart(Clock::now()),
                    work_.leases().OwnLosses(rank, step_));
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
  DivideSlices(step);
  work_.Order(step);
  ordered_ = step;
}

bool Coordinator::StepsAreLong() const {
  const bool last = progress_.last_step_s() >= kLongStepSeconds;
  if (last == work_.by_slice()) return last;  // nearly always, and asked before each step
  return progress_.MedianStep().value_or(0) >= kLongStepSeconds;
}

// A worker that is lost takes with it what it has not pushed. Where a step takes long, and so
// little memory that its time is nothing against that, slices are pushed one by one as they are
// done.
bool Coordinator::PushSlices() const {
  if (!recovers_ || !StepsAreLong()) return false;
  const auto slices = static_cast<size_t>(plan_.slices);
  return slices * graph_.layout().arena_floats() * sizeof(float) <= kMostBytesBySlice &&
         slices * aggregator_.chunks().size() <= kMostPartsBySlice &&
         std::ranges::all_of(members_.Staying(),
                             [this](uint32_t rank) { return members_.SharesMemory(rank); });
}

// Other shares, where some went, came or came back, or where others are faster (cluster.shares); or
// the same in other pieces.
void Coordinator::DivideSlices(int64_t step) {
  std::vector<uint32_t> staying = members_.Staying();
  const bool others = recovers_ && !staying.empty() && staying != work_.sharing();
  std::optional<Shares::Division> division;
  if (others) {
    progress_.SetWorkers(static_cast<uint32_t>(staying.size()));
    division = shares_.AmongOthers(step, staying);
  } else {
    staying = work_.sharing();
    division = shares_.Otherwise(step, staying, work_.slices_of_each());
  }
  const bool by_slice = PushSlices();
  if (!division) {
    if (by_slice != work_.by_slice()) {
      LogInfo("steps are {}: from step {} on a worker pushes {}", by_slice ? "long" : "short", step,
              by_slice ? "each slice by itself" : "what it has added up");
      work_.Share(std::move(staying), work_.slices_of_each(), by_slice);
    }
    return;
  }
  if (auto& change = division->change) {
    *change->mutable_at() = progress_.PositionLine().at();
    change->set_text(TextOf(*change));
    LogInfo("shares {}", change->text());
    reporter_.Metrics(*change);
    reporter_.SharesChanged(std::move(*change));
  }
  work_.Share(std::move(staying), std::move(division->slices), by_slice);
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
  // Who takes part; before the run begins, who is here. Who has left counts no more.
  std::vector<uint32_t> now = phase_ == Phase::kGathering ? members_.Seated() : members_.Entered();
  if (kind == events::MemberChange::LEFT) std::erase(now, rank);
  change.set_workers(static_cast<int64_t>(now.size()));
  if (kind == events::MemberChange::LOST) last_loss_ = TextOf(change);
  changes_.Tell(std::move(change));
}

}  // namespace muster
