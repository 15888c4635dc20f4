#include "ps/run_watch.h"

#include <fmt/core.h>

#include <utility>

#include "common/base/log.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kLookInterval{250};
constexpr std::chrono::seconds kStatusInterval{1};

double SecondsOf(RunWatch::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// In a word, where it does not take part as the others do.
const char* StateOf(const Member& member) {
  if (!member.peer) return member.pid == 0 ? "" : member.released ? "left" : "lost";
  if (member.leaving) return "leaving";
  if (member.entered) return "";
  return member.was_ready ? "late" : "joining";
}

std::optional<RunStatus::Evaluated> EvaluatedOf(const std::optional<EvaluationResult>& result) {
  if (!result) return std::nullopt;
  return RunStatus::Evaluated{
      .accuracy = result->accuracy, .loss = result->loss, .step = result->version};
}

}  // namespace

RunWatch::RunWatch(const std::string& run_dir, const Membership& members, const Progress& progress,
                   Reporter& reporter, BackgroundThread& thread)
    : members_(members),
      progress_(progress),
      reporter_(reporter),
      recent_(members.size()),
      file_(run_dir, thread) {
  for (uint32_t rank = members.roster().workers(); rank < members.size(); ++rank) Lost(rank);
}

void RunWatch::Begin(const StepPlan& plan, const Assignment& assignment) {
  const std::vector<int64_t> before = std::exchange(slices_, {});
  samples_.clear();
  for (uint32_t rank = 0; rank < assignment.ranks(); ++rank) {
    int64_t slices = 0;
    for (const Range& range : assignment.SlicesOf(rank)) slices += range.size();
    // Times of another share say nothing about this one.
    if (rank < before.size() && before[rank] != slices) recent_.Forget(rank);
    slices_.push_back(slices);
    samples_.push_back(static_cast<double>(plan.global_batch) * static_cast<double>(slices) /
                       static_cast<double>(assignment.slices));
  }
}

void RunWatch::Log(const events::Log& line) {
  measured_ = line.measured();
  learning_rate_ = line.learning_rate();
}

void RunWatch::Look(const Moment& moment, Clock::time_point now) {
  checkpoint_ = moment.checkpoint;
  next_look_ = now + kLookInterval;
  LookForStragglers(now);
  LookForStall(moment);
  if (now < next_status_ || !file_.wanted()) return;
  next_status_ = now + kStatusInterval;
  RunStatus status = Status(moment.state, now);
  if (moment.evaluating) *status.progress.mutable_evaluating() = *moment.evaluating;
  file_.Write(status);
}

void RunWatch::LookForStragglers(Clock::time_point now) {
  const auto change = stragglers_.Look(recent_, progress_.steps(), now);
  if (!change) return;
  const StragglerWatch::Slowest& who = change->who;
  if (change->over) {
    Tell(fmt::format("{} no longer keeps the others waiting (step {}); it did since step {}",
                     members_.Name(who.rank), FormatCount(progress_.steps()),
                     FormatCount(who.since_step)));
  } else {
    Tell(fmt::format(
        "{} is slow since step {}: {:.0f} ms of compute and input a step, the others "
        "{:.0f} ms; they wait for it",
        members_.Name(who.rank), FormatCount(who.since_step), who.busy_ms, who.others_ms));
  }
}

void RunWatch::LookForStall(const Moment& moment) {
  if (moment.waited < stalled_) Went();  // it waits for something else by now
  stalled_ = moment.waited;
  if (!moment.waits || !stall_.Look(moment.waited, moment.usual)) return;
  waits_ = moment.waits();
  Tell(waits_);
}

void RunWatch::Went() {
  if (const auto waited = stall_.Done(stalled_)) {
    Tell(fmt::format("the run goes on, after about {:.0f} s", *waited));
  }
  waits_.clear();
}

RunStatus RunWatch::Status(const char* state, Clock::time_point now) const {
  RunStatus status{.state = state,
                   .progress = progress_.PositionLine(),
                   .learning_rate = learning_rate_,
                   .validated = EvaluatedOf(progress_.validated()),
                   .tested = EvaluatedOf(progress_.tested()),
                   .waits = waits_,
                   .checkpoint = checkpoint_};
  *status.progress.mutable_measured() = measured_;
  auto ranks = static_cast<uint32_t>(recent_.ranks());
  // Seats that were never taken.
  while (ranks > members_.roster().workers() && members_.roster().at(ranks - 1).pid == 0) --ranks;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const Member& member = members_.roster().at(rank);
    const double busy_ms = recent_.MeanBusy(rank);
    status.ranks.push_back({.host = member.host,
                            .pid = member.pid,
                            .slices = rank < slices_.size() ? slices_[rank] : 0,
                            .images_per_second = busy_ms > 0 && rank < samples_.size()
                                                     ? 1e3 * samples_[rank] / busy_ms
                                                     : 0,
                            .parts = recent_.Of(rank),
                            .state = StateOf(member)});
  }
  if (const auto& slowest = stragglers_.slowest()) {
    status.slowest = {.rank = slowest->rank,
                      .since_step = slowest->since_step,
                      .since_s = SecondsOf(now - slowest->since),
                      .busy_ms = slowest->busy_ms,
                      .others_ms = slowest->others_ms,
                      .straggles = slowest->straggles};
  }
  return status;
}

void RunWatch::End(const events::Summary& summary) {
  measured_ = summary.measured();
  waits_.clear();
  const char* const state = summary.end() == events::Summary::COMPLETED     ? "completed"
                            : summary.end() == events::Summary::INTERRUPTED ? "interrupted"
                                                                            : "failed";
  file_.Write(Status(state, Clock::now()), /*last=*/true);
}

void RunWatch::Tell(const std::string& line) {
  LogWarning("{}", line);
  reporter_.Warning(line);
}

}  // namespace muster
