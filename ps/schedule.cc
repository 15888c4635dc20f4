#include "ps/schedule.h"

#include <cmath>

namespace muster {

float LearningRateAt(const config::LearningRate& schedule, int64_t samples) {
  const double intervals =
      schedule.has_interval_samples()
          ? static_cast<double>(samples) / static_cast<double>(schedule.interval_samples())
          : 0;
  switch (schedule.type()) {
    case config::LearningRate::CONSTANT:
      return static_cast<float>(schedule.base());
    case config::LearningRate::STEP:
      return static_cast<float>(schedule.base() *
                                std::pow(schedule.factor(), std::floor(intervals)));
    case config::LearningRate::EXPONENTIAL:
      return static_cast<float>(schedule.base() * std::pow(schedule.factor(), intervals));
  }
  return 0;
}

}  // namespace muster
