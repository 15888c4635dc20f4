#include "ps/update/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/config/update_settings.h"

namespace muster {
namespace {

// Falls from 1 at x = 0 to 0 at x = 1, flat at both ends.
double HalfCosine(double x) { return (1 + std::cos(std::numbers::pi * x)) / 2; }

}  // namespace

LearningRateSchedule::LearningRateSchedule(const config::LearningRate& settings, uint32_t workers,
                                           int64_t run_samples)
    : settings_(settings),
      base_(ScaledBase(settings, workers)),
      total_(settings.has_total_samples() ? settings.total_samples() : run_samples) {}

double LearningRateSchedule::At(int64_t samples, int64_t reductions) const {
  if (settings_.type() == config::LearningRate::ONE_CYCLE) return OneCycle(samples);
  const bool plateau = settings_.type() == config::LearningRate::PLATEAU;
  const double full = plateau ? Reduced(reductions) : base_;
  if (samples >= settings_.warmup_samples()) return plateau ? full : AfterWarmup(samples);
  const double done =
      static_cast<double>(samples) / static_cast<double>(settings_.warmup_samples());
  return full * (settings_.warmup_start() + (1 - settings_.warmup_start()) * done);
}

double LearningRateSchedule::Progress(int64_t samples) const {
  const int64_t warmup = settings_.warmup_samples();
  if (samples >= total_) return 1;
  return static_cast<double>(samples - warmup) / static_cast<double>(total_ - warmup);
}

double LearningRateSchedule::AfterWarmup(int64_t samples) const {
  const auto intervals = [&] {
    return static_cast<double>(samples - settings_.warmup_samples()) /
           static_cast<double>(settings_.interval_samples());
  };
  switch (settings_.type()) {
    case config::LearningRate::CONSTANT:
    case config::LearningRate::ONE_CYCLE:
    case config::LearningRate::PLATEAU:
      return base_;
    case config::LearningRate::STEP: {
      const auto& milestones = settings_.milestone_samples();
      const double steps = milestones.empty()
                               ? std::floor(intervals())
                               : static_cast<double>(std::upper_bound(milestones.begin(),
                                                                      milestones.end(), samples) -
                                                     milestones.begin());
      return base_ * std::pow(settings_.factor(), steps);
    }
    case config::LearningRate::EXPONENTIAL:
      return base_ * std::pow(settings_.factor(), intervals());
    case config::LearningRate::POLYNOMIAL:
      return settings_.end() +
             (base_ - settings_.end()) * std::pow(1 - Progress(samples), settings_.power());
    case config::LearningRate::COSINE:
      return settings_.end() + (base_ - settings_.end()) * HalfCosine(Progress(samples));
  }
  return base_;
}

double LearningRateSchedule::Reduced(int64_t reductions) const {
  // A base that was scaled below `end` is not raised to it.
  return std::max(std::min(base_, settings_.end()),
                  base_ * std::pow(settings_.factor(), static_cast<double>(reductions)));
}

double LearningRateSchedule::OneCycle(int64_t samples) const {
  const double p = samples >= total_ ? 1 : static_cast<double>(samples) / total_;
  const double peak = settings_.peak_fraction();
  if (p < peak) {
    const double start = base_ / settings_.start_divisor();
    return base_ + (start - base_) * HalfCosine(p / peak);
  }
  return settings_.end() + (base_ - settings_.end()) * HalfCosine((p - peak) / (1 - peak));
}

}  // namespace muster
