#include "ps/step_balance.h"

#include <algorithm>

namespace muster {

void StepBalance::Add(const StepBalance& other) {
  steps += other.steps;
  step_ms += other.step_ms;
  overhead_ms += other.overhead_ms;
  input_ms += other.input_ms;
  imbalance_ms += other.imbalance_ms;
}

StepBalances::Step& StepBalances::At(int64_t step) {
  const auto found = std::ranges::find(open_, step, &Step::step);
  if (found != open_.end()) return *found;
  return open_.emplace_back(Step{.step = step});
}

std::optional<StepBalance> StepBalances::AddTimes(const wire::StepTimes& times) {
  if (times.step() != running_ && times.step() != running_ - 1) return std::nullopt;
  Step& step = At(times.step());
  ++step.reports;
  step.sum_compute_ms += times.compute_ms();
  step.slowest_compute_ms = std::max(step.slowest_compute_ms, times.compute_ms());
  step.slowest_busy_ms = std::max(step.slowest_busy_ms, times.compute_ms() + times.input_ms());
  return TakeIfComplete(step);
}

std::optional<StepBalance> StepBalances::EndStep(int64_t number, double seconds) {
  running_ = number + 1;
  Step& step = At(number);
  step.ms = 1e3 * seconds;
  return TakeIfComplete(step);
}

std::optional<StepBalance> StepBalances::TakeIfComplete(const Step& open) {
  if (!open.ms || open.reports < ranks_) return std::nullopt;
  const Step step = open;
  // A rank's reports come in order: older steps will not be complete any more.
  std::erase_if(open_, [&](const Step& one) { return one.step <= step.step; });
  const double ms = *step.ms;
  if (ms <= 0) return std::nullopt;
  const double mean = step.sum_compute_ms / static_cast<double>(ranks_);
  return StepBalance{.steps = 1,
                     .step_ms = ms,
                     .overhead_ms = ms - step.slowest_compute_ms,
                     .input_ms = step.slowest_busy_ms - step.slowest_compute_ms,
                     .imbalance_ms = step.slowest_compute_ms - mean};
}

}  // namespace muster
