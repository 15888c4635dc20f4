#include "ps/run/deadlines.h"

#include <algorithm>

#include "common/base/process.h"

namespace muster {

void Deadlines::Extend(Clock::duration suspension) {
  began_ = WithoutSuspension(began_, suspension);
  since_ = WithoutSuspension(since_, suspension);
}

std::optional<double> Deadlines::EvaluationMissed(Time now, Time last_block) const {
  return Missed(now, std::max(last_block, since_), limits_.progress_s());
}

std::optional<double> Deadlines::StepMissed(Time now, std::optional<double> median) const {
  return Missed(now, since_, StepLimit(median));
}

double Deadlines::StepLimit(std::optional<double> median) const {
  return median ? std::max(limits_.step_s(), limits_.step_median_factor() * *median)
                : limits_.first_step_s();
}

std::optional<double> Deadlines::Missed(Time now, Time since, double limit) {
  if (now - since <= std::chrono::duration<double>(limit)) return std::nullopt;
  return limit;
}

}  // namespace muster
