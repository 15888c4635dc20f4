// Nobody waits for ever: the deadline of each phase, and who missed it.
#include <fmt/core.h>

#include <set>

#include "common/base/join.h"
#include "common/base/log.h"
#include "ps/coordinator.h"

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
      FailLate(evaluation.MissingRanks(), "no evaluation", *limit);
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

void Coordinator::CheckStep(Clock::time_point now) {
  const auto limit = deadlines_.StepMissed(now, progress_.MedianStep());
  if (!limit) return;
  std::string what;
  const std::vector<uint32_t> late = LateRanks(what);
  FailLate(late, what, *limit);
}

void Coordinator::FailLate(const std::vector<uint32_t>& ranks, const std::string& what,
                           double limit) {
  failure_.Set({ExitCode::kDeadline, std::nullopt,
                fmt::format("{} from {} within {:g} s (step {})", what, members_.Names(ranks),
                            limit, step_)});
}

void Coordinator::Forgive(Clock::duration own_gap) {
  deadlines_.Forgive(own_gap);
  evaluator_.Forgive(own_gap);
}

}  // namespace muster
