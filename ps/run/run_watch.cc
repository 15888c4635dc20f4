#include "ps/run/run_watch.h"

#include <fmt/core.h>

#include <utility>

#include "common/base/text.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kLookInterval{250};
constexpr std::chrono::seconds kStatusInterval{1};

// The state of a member in one word, or "" if it takes part normally.
const char* StateOf(const Member& member) {
  if (member.state == MemberState::kGivenUp && member.pid == 0) return "missing";
  if (!member.present()) return member.pid == 0 ? "" : member.left ? "left" : "lost";
  if (member.leaving) return "leaving";
  if (member.weights_from) return "";
  return member.was_ready ? "late" : "joining";
}

std::optional<RunStatus::Evaluated> EvaluatedOf(const std::optional<EvaluationResult>& result) {
  if (!result) return std::nullopt;
  return RunStatus::Evaluated{
      .accuracy = result->accuracy, .loss = result->loss, .step = result->version};
}

}  // namespace

RunWatch::RunWatch(const Roster& roster, const Progress& progress, Recorder& recorder)
    : roster_(roster), progress_(progress), recorder_(recorder), recent_(roster.size()) {
  for (uint32_t rank = roster.workers(); rank < roster.size(); ++rank) Lost(rank);
}

void RunWatch::Begin(const StepPlan& plan, const Assignment& assignment) {
  const std::vector<int64_t> before = std::exchange(slices_, {});
  samples_.clear();
  for (uint32_t rank = 0; rank < assignment.ranks(); ++rank) {
    int64_t slices = 0;
    for (const Range& range : assignment.SlicesOf(rank)) slices += range.size();
    // Times measured with another share do not apply to this one.
    if (rank < before.size() && before[rank] != slices) recent_.Forget(rank);
    slices_.push_back(slices);
    samples_.push_back(static_cast<double>(plan.global_batch) * static_cast<double>(slices) /
                       static_cast<double>(assignment.slices));
  }
}

void RunWatch::Look(const Moment& moment, Clock::time_point now) {
  checkpoint_ = moment.checkpoint;
  next_look_ = now + kLookInterval;
  LookForStragglers(now);
  LookForStall(moment);
  if (now < next_status_ || !recorder_.wants_status()) return;
  next_status_ = now + kStatusInterval;
  RunStatus status = Status(moment.state);
  if (moment.evaluating) *status.progress.mutable_evaluating() = *moment.evaluating;
  recorder_.Status(std::move(status));
}

void RunWatch::LookForStragglers(Clock::time_point now) {
  const auto change = stragglers_.Look(recent_, progress_.steps(), now);
  if (!change) return;
  const StragglerWatch::Slowest& who = change->who;
  if (change->over) {
    recorder_.Warn(fmt::format("{} is no longer slow at step {}; it was slow since step {}",
                               roster_.Name(who.rank), FormatCount(progress_.steps()),
                               FormatCount(who.since_step)));
  } else {
    recorder_.Warn(fmt::format(
        "{} has been slow since step {}: it spends {:.0f} ms per step on compute and input; the "
        "others spend {:.0f} ms and wait for it",
        roster_.Name(who.rank), FormatCount(who.since_step), who.busy_ms, who.others_ms));
  }
}

void RunWatch::LookForStall(const Moment& moment) {
  if (moment.waited < stalled_) Went();  // the previous wait ended
  stalled_ = moment.waited;
  if (!moment.waits || !stall_.Look(moment.waited, moment.usual)) return;
  waits_ = moment.waits();
  recorder_.Warn(waits_);
}

void RunWatch::Went() {
  if (const auto waited = stall_.Done(stalled_)) {
    recorder_.Warn(fmt::format("the run continues after about {:.0f} s", *waited));
  }
  waits_.clear();
}

RunStatus RunWatch::Status(const char* state) const {
  RunStatus status{.state = state,
                   .progress = progress_.PositionLine(),
                   .validated = EvaluatedOf(progress_.evaluations().validated()),
                   .tested = EvaluatedOf(progress_.evaluations().tested()),
                   .slowest = stragglers_.slowest(),
                   .waits = waits_,
                   .checkpoint = checkpoint_};
  auto ranks = static_cast<uint32_t>(recent_.ranks());
  // Omit spare ranks that were never taken.
  while (ranks > roster_.workers() && roster_.at(ranks - 1).pid == 0) --ranks;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const Member& member = roster_.at(rank);
    const double busy_ms = recent_.MeanBusy(rank);
    status.ranks.push_back({.host = member.host,
                            .pid = member.pid,
                            .slices = rank < slices_.size() ? slices_[rank] : 0,
                            .images_per_second = busy_ms > 0 && rank < samples_.size()
                                                     ? 1e3 * samples_[rank] / busy_ms
                                                     : 0,
                            .parts = recent_.Of(rank),
                            .gpu = recent_.Last(rank),
                            .state = StateOf(member)});
  }
  return status;
}

}  // namespace muster
