#include "ps/run/dispatcher.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "common/base/log.h"
#include "common/link/wire_values.h"
#include "ps/run/find_poison.h"

namespace muster {
namespace {

// A lost worker's work is lost unless it was pushed. If steps take at least this long, workers push
// each slice separately, within the two limits below.
constexpr double kLongStepSeconds = 1;
// Limits on the gradients of all slices together.
constexpr size_t kMostBytesBySlice = 64 << 20;
constexpr size_t kMostPartsBySlice = 4096;

bool StepsAreLong(const Progress& progress, bool were_long) {
  const bool last = progress.last_step_s() >= kLongStepSeconds;
  if (last == were_long) return last;  // the common case; checked before each step
  return progress.MedianStep().value_or(0) >= kLongStepSeconds;
}

}  // namespace

Dispatcher::Dispatcher(const config::Config& config, const Graph& graph, const RunPosition& state,
                       Membership& members, WeightsFeed& feed, RunKeeper& keeper, RunWork& work)
    : cluster_(config.cluster()),
      graph_(graph),
      state_(state),
      members_(members),
      feed_(feed),
      keeper_(keeper),
      recovers_(config.cluster().on_lost_worker() != config::Cluster::ABORT),
      uses_average_(config.evaluation().use_ema()),
      work_(work),
      late_(state, work, members.roster(), keeper.progress) {}

void Dispatcher::Begin() {
  work_.slices.Begin(state_.plan);
  work_.shares.Begin(state_.plan, state_.step, members_.roster().workers());
}

void Dispatcher::BeginStep() {
  work_.slices.BeginStep(state_.step);
  work_.poison.BeginStep();
  late_.BeginStep();
  paused_until_.reset();
  const Roster& roster = members_.roster();
  changed_ = recovers_ && (work_.slices.some_unassigned() || roster.Staying() != roster.Active());
}

void Dispatcher::BeginFinalEvaluation() {
  work_.poison.BeginStep();
  late_.BeginFinalEvaluation();
  MarkChanged();
}

// ---------------------------------------------------------------------------------- orders

void Dispatcher::Want(int64_t step, Time now) {
  wanted_ = step;
  (void)OrderWanted(now);
}

// Orders are sent ahead of time, so that workers never wait for them.
bool Dispatcher::OrderWanted(Time now) {
  const std::vector<uint32_t> staying = members_.roster().Staying();
  const size_t least = std::max<size_t>(1, cluster_.min_workers());
  if (ordered_ >= wanted_ || (recovers_ && staying.size() < least)) return false;
  if (staying != work_.shares.sharing()) {
    keeper_.progress.SetWorkers(static_cast<uint32_t>(staying.size()));
  }
  const bool was_by_slice = work_.shares.by_slice(), by_slice = PushesSlices();
  if (auto change = work_.shares.Divide(wanted_, staying, by_slice)) {
    *change->mutable_at() = keeper_.progress.PositionLine().at();
    change->set_text(TextOf(*change));
    events::Event event;
    *event.mutable_shares_changed() = std::move(*change);
    keeper_.recorder.Record(event);
  }
  if (was_by_slice != by_slice) {
    LogInfo("steps are {}: from step {} workers push {}", by_slice ? "long" : "short", wanted_,
            by_slice ? "each slice separately" : "sums of their slices");
  }
  for (const uint32_t rank : staying) {
    Send(work_.slices.Give(rank, wanted_, work_.shares.assignment().nodes[rank], now));
  }
  ordered_ = wanted_;
  return true;
}

void Dispatcher::Send(const StepOrder& order) {
  wire::ServerMessage message;
  wire::Train& train = *message.mutable_train();
  train.set_order(order.id);
  train.set_step(order.step);
  train.set_samples(state_.plan.At(order.step).samples);
  for (const StepOrder::Part& part : order.parts) *train.add_subtree() = SubtreeOf(part.node);
  train.set_buffer(order.buffer);
  if (state_.loss_scale.is_on()) {
    train.set_loss_scale(static_cast<float>(state_.loss_scale.value()));
  }
  if (order.urgent) {
    train.set_urgent(true);
    const std::vector<bool>& missing = order.parts.front().missing;
    for (size_t c = 0; c < missing.size(); ++c) {
      if (missing[c]) train.add_chunk(static_cast<uint32_t>(c));
    }
  }
  members_.Send(order.rank, std::move(message));
}

bool Dispatcher::PushesSlices() const {
  if (!recovers_ || !StepsAreLong(keeper_.progress, work_.shares.by_slice())) return false;
  const auto slices = static_cast<size_t>(state_.plan.slices);
  const Roster& roster = members_.roster();
  return slices * graph_.layout().arena_floats() * sizeof(float) <= kMostBytesBySlice &&
         slices * feed_.published().size() <= kMostPartsBySlice &&
         std::ranges::all_of(roster.Staying(),
                             [&](uint32_t rank) { return roster.at(rank).shares_memory; });
}

void Dispatcher::OrderEvaluation(int64_t version, wire::EvaluationSet set, Time now) {
  const std::vector<uint32_t> ranks = members_.roster().Staying();
  const std::vector<wire::Evaluate> orders =
      work_.evaluator.Begin(version, set, ranks, now, work_.shares.TimesOf(ranks));
  for (size_t i = 0; i < ranks.size(); ++i) {
    wire::ServerMessage message;
    *message.mutable_evaluate() = orders[i];
    members_.Send(ranks[i], std::move(message));
  }
  MarkChanged();
}

// ---------------------------------------------------------------------------------- events

void Dispatcher::OnLoss(uint32_t rank) {
  if (work_.slices.some_unassigned() && !work_.slices.Computes(rank)) MarkChanged();
}

void Dispatcher::OnGradient(uint32_t rank, const StepOrder& order, double seconds) {
  if (members_.roster().at(rank).leaving) MarkChanged();  // this may have been its last work
  late_.OnGradient(order, seconds);
}

// A worker that owes no block may leave or help others.
void Dispatcher::OnBlock(uint32_t rank) {
  if (!work_.evaluator.Owes(rank)) MarkChanged();
}

Dispatcher::Dropped Dispatcher::Drop(uint32_t rank) {
  const Dropped dropped{work_.slices.OpenSlices(rank), work_.evaluator.Drop(rank)};
  work_.slices.Lose(rank);
  work_.poison.Forget(rank);
  work_.shares.Forget(rank);
  keeper_.watch.Lost(rank);
  MarkChanged();
  return dropped;
}

// ---------------------------------------------------------------------------------- late workers

bool Dispatcher::ResetLate(Time now, Time since) {
  if (!recovers_ || !state_.has_begun()) return false;
  const bool evaluates = work_.evaluator.Evaluates(state_.step);
  if (!evaluates && ordered_ < state_.step) return false;
  const std::vector<uint32_t> late = late_.Find(now, since);
  for (const uint32_t rank : late) {
    const double waited = std::chrono::duration<double>(now - since).count();
    if (!evaluates) work_.shares.WasLate(rank, waited, work_.slices.OwnLosses(rank));
    Reset(rank, "too slow", now);
  }
  if (late.empty()) return false;
  late_.OnReset();
  return true;
}

void Dispatcher::Reset(uint32_t rank, const char* why, Time now) {
  work_.poison.OnReset(rank, HeldItems(work_, state_, members_.roster(), rank));
  const int64_t slices = work_.slices.OpenSlices(rank), blocks = work_.evaluator.Drop(rank);
  work_.slices.Close(rank);
  members_.Reset(rank, now);
  keeper_.watch.Lost(rank);
  keeper_.MemberChanged(events::MemberChange::FENCED, rank, why, slices, blocks);
  MarkChanged();
}

void Dispatcher::Extend(std::chrono::steady_clock::duration suspension) {
  work_.slices.Extend(suspension);
  work_.evaluator.Extend(suspension);
}

// ---------------------------------------------------------------------------------- unassigned

void Dispatcher::CatchUp(Time now) {
  if (!changed_) return;
  changed_ = false;
  if (!state_.has_begun() || state_.phase == RunPosition::Phase::kDone) return;
  const Roster& roster = members_.roster();
  const auto has_version = [&](uint32_t rank) { return roster.HasVersion(rank, state_.step); };
  const std::vector<uint32_t> active = roster.Active();
  const bool goes_on = std::ranges::any_of(active, has_version);
  if (!goes_on) {
    // No worker has W(step). Reset the workers that were about to begin with the next step.
    for (const uint32_t rank : active) Reset(rank, "needed one step earlier", now);
    changed_ = false;
  }
  if (ordered_ < wanted_ || !goes_on) {
    for (const uint32_t rank : roster.ReadyToEnter()) Activate(rank);
  }
  (void)OrderWanted(now);
  GiveOutSlices(now);
  if (work_.slices.needs_helpers()) {
    // Workers that wait for the next step can help if they read the weights from shared memory.
    // Sending them W(step) could take longer than the step.
    for (const uint32_t rank : roster.ReadyToEnter()) {
      if (roster.at(rank).shares_memory) Activate(rank);
    }
    GiveOutSlices(now);
  }
  GiveOutBlocks(now);
  ReleaseLeaving();
}

void Dispatcher::Activate(uint32_t rank) {
  const bool averages = work_.evaluator.running() && uses_average_;
  feed_.Activate(rank,
                 averages ? std::optional(work_.evaluator.current().version()) : std::nullopt);
  keeper_.MemberChanged(events::MemberChange::JOINED, rank, "");
}

// Gives one piece at a time to workers that have reported all losses of their own slices, so the
// first free worker gets the next piece. The worker is still in its backward pass then, so it does
// not wait for the order.
void Dispatcher::GiveOutSlices(Time now) {
  paused_until_.reset();
  if (state_.phase != RunPosition::Phase::kTraining || ordered_ < state_.step) return;
  if (!work_.slices.some_unassigned()) return;
  for (const StepOrder& order : work_.slices.GiveUnassigned(
           members_.roster().Helpers(state_.step), members_.Buffers(), work_.poison, now)) {
    work_.shares.Disturbed(order.rank, state_.step + 1);  // it may already compute that step
    Send(order);
  }
  paused_until_ = work_.slices.paused_until();
}

void Dispatcher::GiveOutBlocks(Time now) {
  if (!work_.evaluator.running()) return;
  const auto how = [&](int64_t block) {
    const WorkItem item{WorkItem::Kind::kBlock, block};
    if (!work_.evaluator.Evaluates(state_.step) || !work_.poison.Suspects(item)) {
      return Evaluator::Give::kWithOthers;
    }
    const auto until = work_.poison.PausedUntil(item, now);
    if (until && (!paused_until_ || *until < *paused_until_)) paused_until_ = until;
    return until ? Evaluator::Give::kLater : Evaluator::Give::kAlone;
  };
  for (const auto& [rank, order] : work_.evaluator.GiveUnassigned(
           members_.roster().Helpers(work_.evaluator.current().version()), how, now)) {
    wire::ServerMessage message;
    *message.mutable_evaluate() = order;
    members_.Send(rank, std::move(message));
  }
}

void Dispatcher::ReleaseLeaving() {
  for (const uint32_t rank : members_.roster().Seated()) {
    const Member& member = members_.roster().at(rank);
    if (!member.leaving || member.state >= MemberState::kReleased) continue;
    // A worker that was reset has nothing to deliver.
    const bool owes =
        member.weights_from && (work_.slices.Owes(rank) || work_.evaluator.Owes(rank));
    if (!owes) members_.Release(rank);
  }
}

}  // namespace muster
