// The factor by which workers multiply the gradient of the loss with worker.precision FP16, so that
// small gradients do not become zero in half precision. The server divides the whole gradient by
// it. It is always a power of two, so that both are exact. As in PyTorch's torch.amp.GradScaler, it
// is halved after a step whose gradient is not finite, and doubled after 2000 finite ones in a row.
//
// Owner: the run. Part of its state: the scale of a step depends only on the steps before it, and
// checkpoints save it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace muster {

class LossScale {
 public:
  static constexpr double kFirst = 65536;
  // Below 1 a gradient that is not finite is no longer blamed on the scale.
  static constexpr double kLeast = 0.5;
  static constexpr double kMost = 4294967296;  // 2^32: gradients are tiny, or all zero

  // Always 1 if it is not `on`.
  explicit LossScale(bool on = false, int64_t interval = 2000)
      : on_(on), interval_(interval), value_(on ? kFirst : 1) {}

  bool is_on() const { return on_; }
  double value() const { return value_; }
  // The number of steps with finite gradients since the last change.
  int64_t good_steps() const { return good_steps_; }
  bool CanFall() const { return on_ && value_ > kLeast; }

  void Restore(double value, int64_t good_steps) {
    if (!on_) return;
    value_ = value;
    good_steps_ = good_steps;
  }

  // Counts a step. `finite`: whether its whole gradient was. Returns whether the scale changes.
  bool Count(bool finite) {
    if (!on_) return false;
    const double before = value_;
    good_steps_ = finite ? good_steps_ + 1 : 0;
    if (!finite) {
      value_ = std::max(value_ / 2, kLeast);
    } else if (good_steps_ == interval_) {
      value_ = std::min(value_ * 2, kMost);
      good_steps_ = 0;
    }
    return value_ != before;
  }

 private:
  bool on_;
  int64_t interval_;
  double value_;
  int64_t good_steps_ = 0;
};

}  // namespace muster
