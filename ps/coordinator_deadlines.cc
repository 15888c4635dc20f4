// Nobody waits for ever: the deadline of each phase, and who missed it.
#include <fmt/core.h>

#include <set>

#include "common/base/join.h"
#include "common/base/log.h"
#include "ps/coordinator.h"
#include "ps/missing_parts.h"

namespace muster {

void Coordinator::CheckDeadlines(std::chrono::steady_clock::time_point now) {
  if (phase_ == Phase::kGathering) {
    CheckStart(now);
  } else if (phase_ == Phase::kPreparing) {
    if (const auto limit = deadlines_.ReadyMissed(now)) {
      FailLate(members_.UnreadyRanks(), "no Ready", *limit);
    }
  } else if (evaluator_.running() &&
             (phase_ == Phase::kFinishing || evaluator_.current().version() == step_)) {
    const Evaluation& evaluation = evaluator_.current();
    if (const auto limit = deadlines_.EvaluationMissed(now, evaluation.last_progress())) {
      FailLate(evaluation.MissingRanks(), "no evaluation", *limit,
               fmt::format("; {} of {} blocks of the test set are here", evaluation.done(),
                           evaluation.blocks()));
    }
  } else if (phase_ == Phase::kTraining) {
    CheckStep(now);
  }
  members_.CheckSilence(now, config_.deadlines().silence_s());
  if (watch_.IsDue(now)) Look(now);
}

void Coordinator::CheckStart(Clock::time_point now) {
  const std::vector<uint32_t> missing = members_.roster().MissingRanks();
  if (const auto limit = deadlines_.JoinMissed(now)) {
    failure_.Set({ExitCode::kDeadline, std::nullopt,
                  fmt::format("{} of {} workers did not join within {:g} s: rank {} missing",
                              missing.size(), members_.size(), *limit, Join(missing, ", "))});
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
  FailLate(late, what, *limit, missing.empty() ? "" : "; missing: " + missing);
}

void Coordinator::FailLate(const std::vector<uint32_t>& ranks, const std::string& what,
                           double limit, const std::string& missing) {
  failure_.Set({ExitCode::kDeadline, std::nullopt,
                fmt::format("{} from {} within {:g} s (step {}){}", what, members_.Names(ranks),
                            limit, step_, missing)});
}

void Coordinator::Forgive(Clock::duration own_gap) {
  deadlines_.Forgive(own_gap);
  evaluator_.Forgive(own_gap);
}

}  // namespace muster
