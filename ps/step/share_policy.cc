#include "ps/step/share_policy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/plan/split.h"
#include "ps/record/recent_times.h"

namespace muster {
namespace {

// The assumed cost of the first change, in steps: prefetched batches are dropped and new gradient
// buffers are touched for the first time.
constexpr double kAssumedCost = 0.5;

}  // namespace

void SharePolicy::EndStep(int64_t step, double seconds) {
  if (step < from_step_) return;
  if (step == from_step_) {
    first_s_ = seconds;
    return;
  }
  seconds_.push_back(seconds);
  sum_s_ += seconds;
}

bool SharePolicy::IsDue() const {
  return static_cast<int64_t>(seconds_.size()) >= kSteps * patience_ &&
         sum_s_ >= kSeconds * static_cast<double>(patience_);
}

void SharePolicy::Restart() {
  seconds_.clear();
  sum_s_ = 0;
}

std::vector<int64_t> SharePolicy::Best(int64_t slices, const std::vector<double>& times) {
  // Give every worker at least one slice, so that its speed stays measurable.
  std::vector<int64_t> best = SplitByTime(slices, times, /*least=*/1);
  std::vector<int64_t> even = EvenSizes(slices, times.size());
  return Longest(best, times) < (1 - kLeastSaving) * Longest(even, times) ? best : even;
}

bool SharePolicy::WasBad(double usual_s) {
  cost_s_ = std::clamp(first_s_ - usual_s, 0.0, usual_s);  // anything longer had other causes
  const double saved_s = trial_->usual_s - usual_s;
  patience_ = saved_s < trial_->promised_s / 2 ? std::min(2 * patience_, kMostPatience) : 1;
  return saved_s < -kLeastSaving * trial_->usual_s;
}

std::optional<SharePolicy::Decision> SharePolicy::Look(int64_t step, int64_t left,
                                                       const std::vector<int64_t>& slices,
                                                       const std::vector<double>& times) {
  const double usual_s = Quantile(seconds_, 0.5);
  const auto interval = std::min<int64_t>(static_cast<int64_t>(seconds_.size()), left);
  Restart();
  Decision decision{.slices = {}, .now_ms = Longest(slices, times)};
  if (trial_ && WasBad(usual_s)) {
    decision.slices = std::exchange(trial_, std::nullopt)->before;
    decision.taken_back = true;
  } else {
    trial_.reset();
    decision.slices = Best(std::accumulate(slices.begin(), slices.end(), int64_t{0}), times);
  }
  decision.then_ms = Longest(decision.slices, times);
  if (decision.slices == slices) return std::nullopt;
  if (!decision.taken_back) {
    const double saving_ms = decision.now_ms - decision.then_ms;
    const double cost_ms = 1e3 * cost_s_.value_or(kAssumedCost * usual_s);
    if (saving_ms < kLeastSaving * decision.now_ms) return std::nullopt;
    if (saving_ms * static_cast<double>(interval) <= cost_ms) return std::nullopt;
    trial_ = {.before = slices, .usual_s = usual_s, .promised_s = saving_ms / 1e3};
  }
  from_step_ = step;
  return decision;
}

std::vector<int64_t> SharePolicy::Divide(int64_t step, int64_t slices,
                                         const std::vector<double>& times, size_t workers) {
  Restart();
  trial_.reset();
  from_step_ = step;
  return times.empty() ? EvenSizes(slices, workers) : Best(slices, times);
}

}  // namespace muster
