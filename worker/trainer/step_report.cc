#include "worker/trainer/step_report.h"

#include <algorithm>
#include <utility>

namespace muster {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

}  // namespace

// Between steps a worker waits in three stages: until its gradients are handed over (push), until
// the first layer's new weights arrive, that is, until the slowest worker's gradient has been added
// (wait), and until the other layers' weights arrive (pull).
void StepReport::BookWait(Time begin, Time handed_over) {
  const Time end = Clock::now();
  const Time pushed = std::clamp(handed_over, begin, end);
  times_.set_push_ms(times_.push_ms() + Milliseconds(pushed - begin));
  const double rest = Milliseconds(end - pushed);
  if (first_weights_seen_) {
    times_.set_pull_ms(times_.pull_ms() + rest);
  } else {
    times_.set_wait_ms(times_.wait_ms() + rest);
  }
}

void StepReport::BookInput(Time begin) {
  times_.set_input_ms(times_.input_ms() + Milliseconds(Clock::now() - begin));
}

void StepReport::AddWaited(Time begin) { waited_ms_ += Milliseconds(Clock::now() - begin); }

void StepReport::AddPushed(Time begin) { pushed_ms_ += Milliseconds(Clock::now() - begin); }

void StepReport::BeginPassesAgain(Time begin) { waited_ms_ = Milliseconds(Clock::now() - begin); }

void StepReport::BookCompute(Time begin) {
  times_.set_compute_ms(times_.compute_ms() + Milliseconds(Clock::now() - begin) - waited_ms_ -
                        pushed_ms_);
  times_.set_push_ms(times_.push_ms() + pushed_ms_);
  waited_ms_ = pushed_ms_ = 0;
}

wire::StepTimes StepReport::Take(int64_t step) {
  times_.set_step(step);
  if (device_bytes_ > 0) times_.set_gpu_bytes(device_bytes_);
  gpu_.Put(times_);
  return std::exchange(times_, {});
}

}  // namespace muster
