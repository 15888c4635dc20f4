#include "ps/run/find_poison.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace muster {
namespace {

// Number of missing blocks to suspect when a worker is lost. Blocks are evaluated in order, so the
// block that killed the worker is the first missing one, unless results that it had not sent yet
// were lost too. Over a network, more results wait to be sent.
constexpr size_t kMostBlocks = 16, kMostBlocksOverAWire = 256;

std::string NameOf(const WorkItem& item, const RunWork& work, const RunPosition& state) {
  const int64_t step = state.step;
  if (item.kind == WorkItem::Kind::kBlock) {
    const Evaluation& evaluation = work.evaluator.current();
    const Range samples = evaluation.SamplesOf(item.index);
    return fmt::format("block {} of the evaluation of step {} (samples {} to {} of the {} set)",
                       item.index, step, samples.begin, samples.end - 1, SetName(evaluation.set()));
  }
  const Batch batch = state.plan.At(step);
  const Range places = state.plan.Slice(batch, item.index);
  return fmt::format("slice {} of step {} (positions {} to {} of epoch {})", item.index, step,
                     places.begin, places.end - 1, batch.epoch);
}

}  // namespace

std::vector<WorkItem> HeldItems(const RunWork& work, const RunPosition& state, const Roster& roster,
                                uint32_t rank) {
  std::vector<WorkItem> items;
  const auto slices = [&](bool urgent) {
    if (!items.empty() || state.phase != RunPosition::Phase::kTraining) return;
    for (const int64_t slice : work.slices.NextSlices(rank, urgent)) {
      items.push_back({WorkItem::Kind::kSlice, slice});
    }
  };
  const auto blocks = [&](bool own) {
    if (!items.empty() || !work.evaluator.Evaluates(state.step)) return;
    const Range share = work.evaluator.current().BlocksOf(rank);
    const bool sees_memory = roster.at(rank).shares_memory;
    const size_t most = sees_memory ? kMostBlocks : kMostBlocksOverAWire;
    for (const int64_t block : work.evaluator.current().AssignedTo(rank)) {
      const bool is_own = share.begin <= block && block < share.end;
      if (is_own == own) items.push_back({WorkItem::Kind::kBlock, block});
    }
    // Suspected blocks come first: a worker gets one only when it has no other work.
    std::stable_partition(items.begin(), items.end(),
                          [&](const WorkItem& item) { return work.poison.Suspects(item); });
    if (items.size() > most) items.resize(most);
  };
  slices(true);
  blocks(true);
  slices(false);
  blocks(false);
  return items;
}

std::string FindPoison(RunWork& work, const RunPosition& state, const Roster& roster, uint32_t rank,
                       std::chrono::steady_clock::time_point now) {
  const auto item = work.poison.OnLost(rank, HeldItems(work, state, roster, rank), now);
  return item ? NameOf(*item, work, state) : "";
}

}  // namespace muster
