#include "ps/run/late_workers.h"

#include <algorithm>

namespace muster {
namespace {

// Each reset doubles the limit for the rest of the step, up to this many times. Otherwise workers
// could reset each other forever when all work takes longer than before.
constexpr int kMostDoublings = 10;

}  // namespace

void LateWorkers::BeginStep() {
  first_part_s_.reset();
  resets_ = 0;
}

void LateWorkers::BeginFinalEvaluation() { resets_ = 0; }

void LateWorkers::OnGradient(const StepOrder& order, double seconds) {
  if (order.IsDelivered() && !first_part_s_ && !work_.slices.Owes(order.rank, state_.step)) {
    first_part_s_ = seconds;
  }
}

void LateWorkers::OnReset() { ++resets_; }

double LateWorkers::UsualStep() const {
  constexpr double kFirstStep = 12;  // a fifth of what deserves a warning, see StallWatch
  return progress_.MedianStep().value_or(first_part_s_.value_or(kFirstStep));
}

// If even the first worker takes longer than usual, this step takes longer for all.
LateWorkers::Duration LateWorkers::After() const {
  double usual = std::max(progress_.MedianStep().value_or(0), first_part_s_.value_or(0));
  if (work_.evaluator.Evaluates(state_.step)) {
    usual = std::chrono::duration<double>(work_.evaluator.current().longest_gap()).count();
  }
  const double seconds =
      std::max<double>(kLeast.count(), 2 * usual) * (1 << std::min(resets_, kMostDoublings));
  return std::chrono::ceil<Duration>(std::chrono::duration<double>(seconds));
}

std::vector<uint32_t> LateWorkers::Find(Time now, Time since) const {
  std::vector<uint32_t> late, idle = roster_.Helpers(state_.step);
  if (work_.evaluator.Evaluates(state_.step)) {
    const Evaluation& evaluation = work_.evaluator.current();
    const Time last = std::max(evaluation.last_progress(), evaluation.last_given());
    if (evaluation.longest_gap() == Duration::zero() || now - last <= After()) return {};
    late = evaluation.OwingRanks();
    std::erase_if(idle, [&](uint32_t rank) { return evaluation.Owes(rank); });
  } else {
    if (!progress_.MedianStep() || now - since <= After()) return {};
    late = work_.slices.Late(now, since, After());
    std::erase_if(idle, [&](uint32_t rank) { return work_.slices.Owes(rank, state_.step); });
  }
  if (idle.empty()) {
    // Workers that are ready, or would begin with the next step, can begin with this one.
    idle = roster_.ReadyToEnter();
    for (const uint32_t rank : roster_.Active()) {
      if (!roster_.HasVersion(rank, state_.step)) idle.push_back(rank);
    }
  }
  return idle.empty() ? std::vector<uint32_t>() : late;
}

}  // namespace muster
