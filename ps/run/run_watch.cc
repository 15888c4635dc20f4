#include "ps/run/run_watch.h"

#include <fmt/core.h>

#include <utility>

#include "common/base/text.h"
#include "ps/record/evaluation_record.h"

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

// `quantile`: a member of Spread.
void PutQuantile(const RecentTimes::Parts& parts, double RecentTimes::Spread::*quantile,
                 events::StepParts& to) {
  to.set_compute_ms(parts[0].*quantile);
  to.set_input_ms(parts[1].*quantile);
  to.set_push_ms(parts[2].*quantile);
  to.set_wait_ms(parts[3].*quantile);
  to.set_pull_ms(parts[4].*quantile);
}

void PutGpu(const wire::StepTimes& gpu, events::Status::Rank& rank) {
  if (gpu.has_gpu_bytes()) rank.set_gpu_memory_mb(1e-6 * static_cast<double>(gpu.gpu_bytes()));
  if (gpu.has_gpu_utilization()) rank.set_gpu_utilization(0.01 * gpu.gpu_utilization());
  if (gpu.has_gpu_temperature()) rank.set_gpu_temperature_c(gpu.gpu_temperature());
  if (gpu.has_gpu_power_w()) rank.set_gpu_power_w(gpu.gpu_power_w());
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
  events::Status status = Status(moment.state);
  if (moment.evaluating) *status.mutable_progress()->mutable_evaluating() = *moment.evaluating;
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

events::Status RunWatch::Status(const char* state) const {
  events::Status status;
  status.set_state(state);
  *status.mutable_progress() = progress_.PositionLine();
  if (const auto& validated = progress_.evaluations().validated()) {
    *status.mutable_validation() = ScoresOf(*validated);
    status.set_validated_step(validated->version);
  }
  if (const auto& tested = progress_.evaluations().tested()) {
    *status.mutable_test() = ScoresOf(*tested);
    status.set_tested_step(tested->version);
  }
  if (const auto& slowest = stragglers_.slowest()) {
    events::Status::Slowest& to = *status.mutable_slowest();
    to.set_rank(slowest->rank);
    to.set_since_step(slowest->since_step);
    to.set_since_s(std::chrono::duration<double>(Clock::now() - slowest->since).count());
    to.set_busy_ms(slowest->busy_ms);
    to.set_others_ms(slowest->others_ms);
    to.set_straggles(slowest->straggles);
  }
  status.set_waits(waits_);
  if (checkpoint_) *status.mutable_checkpoint() = *checkpoint_;
  auto ranks = static_cast<uint32_t>(recent_.ranks());
  // Omit spare ranks that were never taken.
  while (ranks > roster_.workers() && roster_.at(ranks - 1).pid == 0) --ranks;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const Member& member = roster_.at(rank);
    const double busy_ms = recent_.MeanBusy(rank);
    events::Status::Rank& to = *status.add_ranks();
    to.set_rank(rank);
    to.set_host(member.host);
    to.set_pid(member.pid);
    if (rank < slices_.size()) to.set_slices(slices_[rank]);
    if (busy_ms > 0 && rank < samples_.size()) {
      to.set_images_per_second(1e3 * samples_[rank] / busy_ms);
    }
    to.set_state(StateOf(member));
    PutQuantile(recent_.Of(rank), &RecentTimes::Spread::p50, *to.mutable_p50());
    PutQuantile(recent_.Of(rank), &RecentTimes::Spread::p99, *to.mutable_p99());
    PutGpu(recent_.Last(rank), to);
  }
  return status;
}

}  // namespace muster
