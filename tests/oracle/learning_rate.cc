// Schedules, as described in proto/config.proto (LearningRate).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/oracle/oracle.h"

namespace muster::oracle {
namespace {

double Scaled(const config::LearningRate& settings, uint32_t workers) {
  const double factor = static_cast<double>(workers) / settings.base_workers();
  if (settings.scaling() == config::LearningRate::LINEAR) return settings.base() * factor;
  if (settings.scaling() == config::LearningRate::SQRT) return settings.base() * std::sqrt(factor);
  return settings.base();
}

// Half a cosine from 1 down to 0.
double Cosine(double p) { return (1 + std::cos(std::numbers::pi * p)) / 2; }

double OneCycle(const config::LearningRate& settings, double base, double p) {
  const double peak = settings.peak_fraction();
  if (p < peak) return base + (base / settings.start_divisor() - base) * Cosine(p / peak);
  return settings.end() + (base - settings.end()) * Cosine((p - peak) / (1 - peak));
}

int64_t MilestonesReached(const config::LearningRate& settings, int64_t samples) {
  return std::ranges::count_if(settings.milestone_samples(),
                               [&](int64_t m) { return samples >= m; });
}

}  // namespace

double RateAt(const config::LearningRate& settings, uint32_t workers, int64_t run_samples,
              int64_t samples, int64_t reductions) {
  using Rate = config::LearningRate;
  const double base = Scaled(settings, workers), end = settings.end();
  const int64_t total = settings.has_total_samples() ? settings.total_samples() : run_samples;
  const int64_t warmup = settings.type() == Rate::ONE_CYCLE ? 0 : settings.warmup_samples();
  const auto lowered = [&] {
    return std::max(std::min(base, end),
                    base * std::pow(settings.factor(), static_cast<double>(reductions)));
  };
  if (samples < warmup) {
    const double full = settings.type() == Rate::PLATEAU ? lowered() : base;
    const double start = settings.warmup_start();
    return full *
           (start + (1 - start) * (static_cast<double>(samples) / static_cast<double>(warmup)));
  }
  const auto after = static_cast<double>(samples - warmup);
  const double p = samples >= total ? 1 : after / static_cast<double>(total - warmup);
  const double intervals = after / static_cast<double>(settings.interval_samples());
  switch (settings.type()) {
    case Rate::CONSTANT:
      return base;
    case Rate::STEP:
      return base * std::pow(settings.factor(),
                             settings.milestone_samples().empty()
                                 ? std::floor(intervals)
                                 : static_cast<double>(MilestonesReached(settings, samples)));
    case Rate::EXPONENTIAL:
      return base * std::pow(settings.factor(), intervals);
    case Rate::POLYNOMIAL:
      return end + (base - end) * std::pow(1 - p, settings.power());
    case Rate::COSINE:
      return end + (base - end) * Cosine(p);
    case Rate::ONE_CYCLE:
      return OneCycle(settings, base, p);
    case Rate::PLATEAU:
      return lowered();
  }
  return base;
}

}  // namespace muster::oracle
