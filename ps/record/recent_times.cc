#include "ps/record/recent_times.h"

#include <algorithm>
#include <cmath>

namespace muster {
namespace {

double Busy(const std::array<float, kStepPartCount>& parts) {
  return static_cast<double>(parts[0]) + parts[1];
}

}  // namespace

double Quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + std::lround(share * last);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

void RecentTimes::Forget(uint32_t rank) {
  if (rank < ranks_.size()) ranks_[rank] = {.reports = false};
}

void RecentTimes::Add(uint32_t rank, const wire::StepTimes& times) {
  if (rank >= ranks_.size()) return;
  Rank& one = ranks_[rank];
  const std::array<float, kStepPartCount> parts{
      static_cast<float>(times.compute_ms()), static_cast<float>(times.input_ms()),
      static_cast<float>(times.push_ms()), static_cast<float>(times.wait_ms()),
      static_cast<float>(times.pull_ms())};
  if (one.ring.size() < kSteps) {
    one.ring.push_back(parts);
  } else {
    one.ring[one.next] = parts;
  }
  one.next = (one.next + 1) % kSteps;
  one.last = times;
  one.reports = true;
}

RecentTimes::Parts RecentTimes::Of(uint32_t rank) const {
  Parts parts;
  std::vector<double> values;
  for (size_t part = 0; part < kStepPartCount; ++part) {
    values.clear();
    for (const auto& one : ranks_[rank].ring) values.push_back(one[part]);
    parts[part] = {Quantile(values, 0.5), Quantile(values, 0.99)};
  }
  return parts;
}

double RecentTimes::UsualBusy(uint32_t rank, size_t steps) const {
  const Rank& one = ranks_[rank];
  if (one.ring.size() < steps || steps < 2) return 0;
  double sum = 0, longest = 0;
  for (size_t back = 1; back <= steps; ++back) {
    const double busy = Busy(one.ring[(one.next + kSteps - back) % kSteps]);
    sum += busy;
    longest = std::max(longest, busy);
  }
  return (sum - longest) / static_cast<double>(steps - 1);
}

double RecentTimes::MeanBusy(uint32_t rank) const {
  double sum = 0;
  for (const auto& one : ranks_[rank].ring) sum += Busy(one);
  const size_t count = ranks_[rank].ring.size();
  return count > 0 ? sum / static_cast<double>(count) : 0;
}

}  // namespace muster
