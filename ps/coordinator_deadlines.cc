// Nobody waits for ever: the deadline of each phase, and who missed it.
#include <fmt/core.h>

#include <set>

#include "common/base/log.h"
#include "common/base/text.h"
#include "ps/coordinator.h"
#include "ps/missing_parts.h"

namespace muster {
namespace {

// A busy machine may well keep a worker from computing for a moment.
constexpr double kLeastLateSeconds = 1;

std::string TextOf(const Range& slices) {
  if (slices.size() == 1) return fmt::format("slice {}", slices.begin);
  return fmt::format("slices {} to {}", slices.begin, slices.end - 1);
}

}  // namespace

void Coordinator::CheckDeadlines(std::chrono::steady_clock::time_point now) {
  if (!Starves()) starved_since_.reset();
  if (phase_ == Phase::kGathering) {
    CheckStart(now);
  } else if (phase_ == Phase::kPreparing && !Starves()) {
    if (const auto limit = deadlines_.ReadyMissed(now)) {
      BlameLate(members_.UnreadyRanks(), "no Ready", *limit);
    }
  } else if (Starves()) {
    CheckStarved(now);
  } else if (Evaluates()) {
    const Evaluation& evaluation = evaluator_.current();
    if (const auto limit = deadlines_.EvaluationMissed(now, evaluation.last_progress())) {
      const std::vector<uint32_t> missing = evaluation.MissingRanks();
      const std::string here =
          fmt::format("{} of {} blocks of the {} set are here", evaluation.done(),
                      evaluation.blocks(), SetName(evaluation.set()));
      if (missing.empty()) {
        failure_.Set({ExitCode::kDeadline, std::nullopt,
                      fmt::format("no evaluation within {:g} s (step {}): {}, and nobody is there "
                                  "for the others",
                                  *limit, step_, here)});
      } else {
        BlameLate(missing, "no evaluation", *limit, "; " + here);
      }
    }
    CheckLateBlocks(now);
  } else if (phase_ == Phase::kTraining) {
    CheckStragglers(now);
    CheckStep(now);
  }
  if (repair_at_ && now >= *repair_at_) repair_due_ = true;
  CheckUnready(now);
  members_.CheckSilence(now, config_.deadlines().silence_s());
  if (watch_.IsDue(now)) Look(now);
}

void Coordinator::CheckStart(Clock::time_point now) {
  const std::vector<uint32_t> missing = members_.roster().MissingRanks();
  if (const auto limit = deadlines_.JoinMissed(now)) {
    if (FinishAsItIs()) return;
    failure_.Set(
        {ExitCode::kDeadline, std::nullopt,
         fmt::format("{} of {} workers did not join within {:g} s: rank {} missing", missing.size(),
                     members_.roster().workers(), *limit, Join(missing, ", "))});
    return;
  }
  if (now < next_waiting_) return;
  next_waiting_ = now + kWaitingInterval;
  LogInfo("waiting for rank {} ({:.0f} s)", Join(missing, ", "), deadlines_.waited(now));
  reporter_.Waiting(missing, deadlines_.waited(now));
}

// Who keeps the step from going on, and what is missing of them.
std::vector<uint32_t> Coordinator::LateRanks(std::string& what) const {
  std::set<uint32_t> late;
  work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
    const Range slices = Covers(lease.node, plan_.slices);
    for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
      if (!losses_.Has(slice)) late.insert(lease.rank);
    }
  });
  what = late.empty() ? "no complete gradient" : "no loss";
  if (late.empty()) return work_.leases().LateRanks(step_, Leases::Whose::kAny);
  return {late.begin(), late.end()};
}

// What that is: slices without a loss, or else variables without a gradient.
std::string Coordinator::WhatIsMissing() const {
  std::vector<MissingPart> parts;
  std::vector<std::string> unreported;
  work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
    const Range slices = Covers(lease.node, plan_.slices);
    int64_t first = slices.begin;
    while (first < slices.end && losses_.Has(first)) ++first;
    if (first < slices.end) {
      unreported.push_back(
          fmt::format("{} (rank {})", SlicesText({first, slices.end}), lease.rank));
    }
    MissingPart part{.rank = lease.rank, .slices = slices, .chunks = {}};
    for (const uint32_t chunk : aggregator_.MissingChunks(lease.node)) {
      if (lease.pending[chunk]) part.chunks.push_back(chunk);
    }
    parts.push_back(std::move(part));
  });
  constexpr size_t kMost = 3;
  if (unreported.empty()) return MissingText(parts, graph_.layout(), aggregator_.chunks());
  if (unreported.size() > kMost) {
    unreported[kMost] = fmt::format("and {} more", unreported.size() - kMost);
    unreported.resize(kMost + 1);
  }
  return Join(unreported, "; ");
}

void Coordinator::CheckStep(Clock::time_point now) {
  const auto limit = deadlines_.StepMissed(now, progress_.MedianStep());
  if (!limit) return;
  std::string what;
  const std::vector<uint32_t> late = LateRanks(what);
  const std::string missing = WhatIsMissing();
  BlameLate(late, what, *limit, missing.empty() ? "" : "; missing: " + missing);
}

// Who is late beyond a deadline is lost, and others do its work, if there are others.
void Coordinator::BlameLate(const std::vector<uint32_t>& ranks, const std::string& what,
                            double limit, const std::string& missing) {
  if (!recovers_ || ranks.empty()) {
    return failure_.Set({ExitCode::kDeadline, std::nullopt,
                         fmt::format("{} from {} within {:g} s (step {}){}", what,
                                     members_.Names(ranks), limit, step_, missing)});
  }
  for (const uint32_t rank : ranks) {
    OnLost(rank, ExitCode::kDeadline, fmt::format("{} within {:g} s{}", what, limit, missing));
  }
  deadlines_.Restart();
}

// Who came late, or was fenced, is not a part of any step, and no step's deadline looks at it.
void Coordinator::CheckUnready(Clock::time_point now) {
  if (!recovers_ || (phase_ != Phase::kTraining && phase_ != Phase::kFinishing)) return;
  for (const uint32_t rank : members_.UnreadyRanks()) {
    const Member& member = members_.roster().at(rank);
    const auto limit = deadlines_.UnreadyTooLong(now, member.unready_since, !member.was_ready,
                                                 progress_.MedianStep());
    if (!limit) continue;
    OnLost(rank, ExitCode::kDeadline, fmt::format("no Ready within {:g} s", *limit));
  }
}

// Too few workers are left for the next step.
void Coordinator::CheckStarved(Clock::time_point now) {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < members_.roster().workers(); ++rank) {
    if (!members_.entered(rank)) missing.push_back(rank);
  }
  if (!starved_since_) {
    starved_since_ = now;
    next_waiting_ = now;
  }
  if (const auto limit = deadlines_.StarvedTooLong(now, *starved_since_)) {
    failure_.Set(
        {ExitCode::kDeadline, std::nullopt,
         fmt::format("{} of at least {} workers (cluster.min_workers) for {:g} s "
                     "(deadlines.start_s): rank {} missing at step {}{}",
                     members_.Staying().size(), LeastWorkers(), *limit, Join(missing, ", "), step_,
                     last_loss_.empty() ? "" : "; the last loss: " + last_loss_)});
    return;
  }
  if (now < next_waiting_) return;
  next_waiting_ = now + kWaitingInterval;
  const double waited = std::chrono::duration<double>(now - *starved_since_).count();
  LogInfo("waiting for rank {} ({:.0f} s)", Join(missing, ", "), waited);
  reporter_.Waiting(missing, waited);
}

// Where the first one takes longer than steps did so far, this step is longer for all.
Coordinator::Clock::duration Coordinator::LateAfter() const {
  const double usual = std::max(progress_.MedianStep().value_or(0), first_part_s_.value_or(0));
  const double seconds = std::max(kLeastLateSeconds, 2 * usual);
  return std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(seconds));
}

Coordinator::Clock::time_point Coordinator::LateAt() const {
  return deadlines_.since() + LateAfter();
}

// A lease that takes much longer than a step does is given to others as well, if somebody has
// nothing to do. Whose bits come first count.
void Coordinator::CheckStragglers(Clock::time_point now) {
  if (!recovers_ || !progress_.MedianStep() || ordered_ < step_) return;
  const Clock::duration limit = LateAfter();
  if (now - deadlines_.since() <= limit) return;
  std::vector<uint32_t> idle = members_.Entered();
  std::vector<Lease> late;
  work_.leases().ForEachOpen(step_, [&](const Lease& lease) {
    if (lease.brought()) return;
    std::erase(idle, lease.rank);
    if (!lease.late && now - std::max(lease.given, deadlines_.since()) > limit)
      late.push_back(lease);
  });
  if (idle.empty()) idle = members_.ReadyToEnter();
  if (idle.empty() || late.empty()) return;
  for (const Lease& lease : late) {
    work_.MarkLate(lease);
    LogWarning("{} is late with {} of step {}: others compute them, too", members_.Name(lease.rank),
               TextOf(Covers(lease.node, plan_.slices)), step_);
  }
  somebody_late_ = repair_due_ = true;
}

// The same of an evaluation: no block for much longer than any took, and somebody has brought all
// of its own.
void Coordinator::CheckLateBlocks(Clock::time_point now) {
  const Evaluation& evaluation = evaluator_.current();
  if (!recovers_ || evaluation.done() == 0) return;
  const std::chrono::duration<double> gap = evaluation.longest_gap();
  const std::chrono::duration<double> limit(std::max(kLeastLateSeconds, 2 * gap.count()));
  if (now - std::max(evaluation.last_progress(), evaluation.last_given()) <= limit) return;
  const std::vector<uint32_t> missing = evaluation.MissingRanks();
  std::vector<uint32_t> others = members_.Staying();
  std::erase_if(others, [&](uint32_t rank) {
    return !members_.HasVersion(rank, evaluation.version()) || evaluation.late().contains(rank);
  });
  const bool all_are_at_it = std::ranges::includes(missing, others);
  if (all_are_at_it && members_.ReadyToEnter().empty()) return;
  for (const uint32_t rank : missing) {
    if (evaluation.late().contains(rank)) continue;
    LogWarning("{} is late with the evaluation of step {}: others do its blocks, too",
               members_.Name(rank), evaluation.version());
    evaluator_.MarkLate(rank);
    repair_due_ = true;
  }
}

void Coordinator::Forgive(Clock::duration suspension) {
  deadlines_.Forgive(suspension);
  work_.Forgive(suspension);
  if (starved_since_) *starved_since_ += suspension;
  evaluator_.Forgive(suspension);
}

}  // namespace muster
