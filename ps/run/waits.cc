#include "ps/run/waits.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "common/base/text.h"
#include "ps/record/event_texts.h"
#include "ps/run/missing_parts.h"

namespace muster {
namespace {

constexpr std::chrono::seconds kWaitingInterval{5};

JobFailure Missed(const std::string& what) { return {ExitCode::kDeadline, std::nullopt, what}; }

}  // namespace

Waits::Waits(RunParts& parts, const Dispatcher& dispatcher, Time now)
    : parts_(parts),
      dispatcher_(dispatcher),
      recovers_(parts.config.cluster().on_lost_worker() != config::Cluster::ABORT),
      deadlines_(parts.config.deadlines(), now),
      next_waiting_(now + kWaitingInterval) {}

void Waits::Extend(std::chrono::steady_clock::duration suspension) {
  deadlines_.Extend(suspension);
  if (starved_since_) *starved_since_ += suspension;
}

Waits::Verdict Waits::Check(Time now) {
  Verdict verdict;
  const auto median = parts_.keeper.progress.MedianStep();
  if (!Starves()) starved_since_.reset();
  if (Starves()) {
    verdict.failure = CheckStarved(now);
  } else if (parts_.state.phase == RunPosition::Phase::kPreparing) {
    if (const auto limit = deadlines_.ReadyMissed(now)) {
      verdict = Blame(parts_.roster.Unready(), "no Ready", *limit);
    }
  } else if (parts_.work.evaluator.Evaluates(parts_.state.step)) {
    verdict = CheckEvaluation(now);
  } else if (parts_.state.phase == RunPosition::Phase::kTraining &&
             !parts_.engine.aggregator.is_program_updating()) {
    if (const auto limit = deadlines_.StepMissed(now, median)) {
      std::string what;
      std::vector<uint32_t> owing = OwingRanks(what);
      const std::string missing = WhatIsMissing();
      // No worker owes the missing part, but the active ones do not make progress; replacements
      // may.
      if (owing.empty()) owing = parts_.roster.Active();
      verdict = Blame(owing, what, *limit, missing.empty() ? "" : "; missing: " + missing);
    }
  }
  CheckUnready(now, verdict);
  return verdict;
}

std::optional<JobFailure> Waits::CheckStart(Time now) {
  const std::vector<uint32_t> missing = parts_.roster.MissingRanks(MemberState::kWaiting);
  if (const auto limit = deadlines_.JoinMissed(now)) {
    return Missed(fmt::format("{} of {} workers did not join within {:g} s: rank {} missing",
                              missing.size(), parts_.roster.workers(), *limit,
                              Join(missing, ", ")));
  }
  TellWaiting(missing, deadlines_.waited(now), now);
  return std::nullopt;
}

void Waits::TellWaiting(const std::vector<uint32_t>& missing, double seconds, Time now) {
  if (now < next_waiting_) return;
  next_waiting_ = now + kWaitingInterval;
  parts_.keeper.recorder.Record(WaitingEvent(missing, seconds));
}

bool Waits::Starves() const {
  if (!recovers_ || parts_.state.phase == RunPosition::Phase::kDone) return false;
  if (parts_.state.phase == RunPosition::Phase::kPreparing) return parts_.roster.Seated().empty();
  if (parts_.state.phase == RunPosition::Phase::kGathering) return false;
  const bool is_ordered = dispatcher_.ordered() >= dispatcher_.wanted();
  return (dispatcher_.wanted() == parts_.state.step && !is_ordered) ||
         parts_.roster.Active().empty();
}

Waits::Verdict Waits::CheckEvaluation(Time now) const {
  const Evaluation& evaluation = parts_.work.evaluator.current();
  const auto limit = deadlines_.EvaluationMissed(now, evaluation.last_progress());
  if (!limit) return {};
  const std::string here =
      fmt::format("{} of {} blocks of the {} set have arrived", evaluation.done(),
                  evaluation.blocks(), SetName(evaluation.set()));
  const std::vector<uint32_t> owing = evaluation.OwingRanks();
  if (!owing.empty()) return Blame(owing, "no evaluation", *limit, "; " + here);
  return {.failure = Missed(fmt::format(
              "no evaluation within {:g} s (step {}): {}, and no worker is left for the rest",
              *limit, parts_.state.step, here)),
          .lost = {}};
}

// Called when too few workers are left for the next step.
std::optional<JobFailure> Waits::CheckStarved(Time now) {
  const std::vector<uint32_t> missing = parts_.roster.MissingRanks(MemberState::kReady);
  if (!starved_since_) {
    starved_since_ = now;
    next_waiting_ = now;
  }
  if (const auto limit = deadlines_.StarvedTooLong(now, *starved_since_)) {
    const std::string& last = parts_.keeper.last_loss();
    return Missed(fmt::format(
        "only {} of the required {} workers (cluster.min_workers) for {:g} s (deadlines.start_s): "
        "rank {} missing at step {}{}",
        parts_.roster.Staying().size(), std::max(1U, parts_.config.cluster().min_workers()), *limit,
        Join(missing, ", "), parts_.state.step, last.empty() ? "" : "; last lost worker: " + last));
  }
  TellWaiting(missing, std::chrono::duration<double>(now - *starved_since_).count(), now);
  return std::nullopt;
}

// A worker that joined late or was reset has no part in a step, so no step deadline covers it.
void Waits::CheckUnready(Time now, Verdict& verdict) const {
  if (!recovers_ || !parts_.state.has_begun() || parts_.state.phase == RunPosition::Phase::kDone)
    return;
  for (const uint32_t rank : parts_.roster.Unready()) {
    const Member& member = parts_.roster.at(rank);
    const auto limit = deadlines_.UnreadyTooLong(now, member.unready_since, !member.was_ready,
                                                 parts_.keeper.progress.MedianStep());
    if (limit) verdict.lost.emplace_back(rank, fmt::format("no Ready within {:g} s", *limit));
  }
}

// Workers that miss a deadline are lost if others can take over their work; otherwise the job
// fails.
Waits::Verdict Waits::Blame(const std::vector<uint32_t>& ranks, const std::string& what,
                            double limit, const std::string& missing) const {
  Verdict verdict;
  if (!recovers_ || ranks.empty()) {
    verdict.failure =
        Missed(fmt::format("{} from {} within {:g} s (step {}){}", what, parts_.roster.Names(ranks),
                           limit, parts_.state.step, missing));
  }
  for (const uint32_t rank : ranks) {
    verdict.lost.emplace_back(rank, fmt::format("{} within {:g} s{}", what, limit, missing));
  }
  return verdict;
}

// Returns the workers that block the current step, and sets `what` to a description of what they
// owe.
std::vector<uint32_t> Waits::OwingRanks(std::string& what) const {
  const StepWork& work = parts_.work.slices;
  std::set<uint32_t> no_loss, no_gradient;
  for (const StepOrder& order : work.orders()) {
    if (!order.open || order.step != parts_.state.step) continue;
    if (!order.IsDelivered()) no_gradient.insert(order.rank);
    for (const StepOrder::Part& part : order.parts) {
      const Range slices = Covers(part.node, parts_.state.plan.slices);
      for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
        if (!work.losses().Has(slice)) no_loss.insert(order.rank);
      }
    }
  }
  what = no_loss.empty() ? "no complete gradient" : "no loss";
  const std::set<uint32_t>& owing = no_loss.empty() ? no_gradient : no_loss;
  return {owing.begin(), owing.end()};
}

// Lists the slices without a loss or, if all have one, the variables without a gradient.
std::string Waits::WhatIsMissing() const {
  const StepWork& work = parts_.work.slices;
  std::vector<MissingPart> parts;
  std::vector<std::string> unreported;
  for (const StepOrder& order : work.orders()) {
    if (!order.open || order.step != parts_.state.step) continue;
    for (const StepOrder::Part& part : order.parts) {
      const Range slices = Covers(part.node, parts_.state.plan.slices);
      int64_t first = slices.begin;
      while (first < slices.end && work.losses().Has(first)) ++first;
      if (first < slices.end) {
        unreported.push_back(
            fmt::format("{} (rank {})", SlicesText({first, slices.end}), order.rank));
      }
      MissingPart missing{.rank = order.rank, .slices = slices, .chunks = {}};
      for (size_t c = 0; c < part.missing.size(); ++c) {
        if (part.missing[c]) missing.chunks.push_back(static_cast<uint32_t>(c));
      }
      parts.push_back(std::move(missing));
    }
  }
  constexpr size_t kMost = 3;
  if (unreported.empty()) return MissingText(parts, parts_.graph.layout(), parts_.engine.chunks());
  if (unreported.size() > kMost) {
    unreported[kMost] = fmt::format("and {} more", unreported.size() - kMost);
    unreported.resize(kMost + 1);
  }
  return Join(unreported, "; ");
}

std::string Waits::StallText(Time now) const {
  const double waited = seconds(now);
  if (Starves()) {
    return fmt::format("step {} has waited {:.0f} s for more workers (cluster.min_workers)",
                       parts_.state.step, waited);
  }
  if (parts_.engine.aggregator.is_program_updating()) {
    return fmt::format(
        "step {} has waited {:.0f} s, now for the program's update; the limit is {:g} s "
        "(deadlines.first_step_s)",
        parts_.state.step, waited, parts_.config.deadlines().first_step_s());
  }
  std::string what;
  const std::vector<uint32_t> owing = OwingRanks(what);
  const std::string missing = WhatIsMissing();
  const std::string from = owing.empty() ? "" : " from " + parts_.roster.Names(owing);
  return fmt::format("step {} has waited {:.0f} s: {}{}{}; the limit is {:g} s", parts_.state.step,
                     waited, what, from, missing.empty() ? "" : "; missing: " + missing,
                     deadlines_.StepLimit(parts_.keeper.progress.MedianStep()));
}

}  // namespace muster
