#include "ps/record/step_balance.h"

#include <algorithm>

namespace muster {

void StepParts::Add(const StepParts& other) {
  compute_ms += other.compute_ms;
  input_ms += other.input_ms;
  push_ms += other.push_ms;
  wait_ms += other.wait_ms;
  pull_ms += other.pull_ms;
}

StepParts StepParts::Over(double divisor) const {
  return {compute_ms / divisor, input_ms / divisor, push_ms / divisor, wait_ms / divisor,
          pull_ms / divisor};
}

StepParts PartsOf(const wire::StepTimes& times) {
  return {times.compute_ms(), times.input_ms(), times.push_ms(), times.wait_ms(), times.pull_ms()};
}

void StepBalance::Add(const StepBalance& other) {
  steps += other.steps;
  step_ms += other.step_ms;
  overhead_ms += other.overhead_ms;
  input_ms += other.input_ms;
  imbalance_ms += other.imbalance_ms;
  parts.Add(other.parts);
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
  step.sum.Add(PartsOf(times));
  step.slowest_compute_ms = std::max(step.slowest_compute_ms, times.compute_ms());
  step.slowest_busy_ms = std::max(step.slowest_busy_ms, times.compute_ms() + times.input_ms());
  return TakeIfComplete(step);
}

std::optional<StepBalance> StepBalances::EndStep(int64_t number, double seconds) {
  running_ = number + 1;
  std::erase_if(open_, [&](const Step& one) { return one.step < number - 1; });
  Step& step = At(number);
  step.ms = 1e3 * seconds;
  return TakeIfComplete(step);
}

std::optional<StepBalance> StepBalances::TakeIfComplete(const Step& open) {
  if (!open.ms || open.reports < ranks_) return std::nullopt;
  const Step step = open;
  // Each rank's reports arrive in order, so older steps will never be complete.
  std::erase_if(open_, [&](const Step& one) { return one.step <= step.step; });
  const double ms = *step.ms;
  if (ms <= 0) return std::nullopt;
  const StepParts mean = step.sum.Over(static_cast<double>(ranks_));
  return StepBalance{.steps = 1,
                     .step_ms = ms,
                     .overhead_ms = ms - step.slowest_compute_ms,
                     .input_ms = step.slowest_busy_ms - step.slowest_compute_ms,
                     .imbalance_ms = step.slowest_compute_ms - mean.compute_ms,
                     .parts = mean};
}

}  // namespace muster
