#include "ps/run/nonfinite_policy.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "common/base/log.h"
#include "ps/update/unsigned_nan.h"

namespace muster {
namespace {

const char* const kNothingKept = "run.on_nonfinite is ABORT, so this step is discarded";

}  // namespace

void NonfinitePolicy::BeginStep(int64_t step) {
  step_ = step;
  bad_loss_.reset();
  counted_ = false;
  too_large_ = 0;
}

void NonfinitePolicy::CheckLoss(uint32_t rank, int64_t slice, double loss) {
  if (std::isfinite(loss) || bad_loss_) return;
  bad_loss_ = {fmt::format("the loss of slice {} is {}", slice, UnsignedNan(loss)), rank};
  if (!may_skip()) Fail(*bad_loss_, kNothingKept);
}

bool NonfinitePolicy::KnowsNextScale(const Aggregator& aggregator) {
  if (!scale_.is_on()) return true;
  if (!aggregator.has_decided()) return false;
  if (std::exchange(counted_, true) || bad_loss_) return true;
  const bool finite = !aggregator.skips();
  const double scale = scale_.value();
  if (!finite && scale_.CanFall()) {
    too_large_ = scale;
  } else if (!finite && !may_skip()) {
    Fail(*aggregator.nonfinite(),
         fmt::format("the loss scale is only {:g}, and {}", scale, kNothingKept));
  }
  if (scale_.Count(finite) && finite) {
    LogInfo("the loss scale is {:g} from step {}", scale_.value(), step_ + 1);
  }
  return true;
}

void NonfinitePolicy::CheckGradient(const Aggregator& aggregator) {
  if (!aggregator.nonfinite() || aggregator.skips()) return;
  // If the step can be skipped, nothing is decided while gradients are still being added.
  if ((may_skip() || scale_.is_on()) && aggregator.sums()) return;
  Fail(*aggregator.nonfinite(),
       may_skip() ? "SKIP_STEP does not apply, because the gradient was finite" : kNothingKept);
}

void NonfinitePolicy::EndStep(const Aggregator& aggregator) {
  if (!aggregator.skips()) {
    skipped_in_a_row_ = 0;
  } else if (too_large_ > 0) {
    const Nonfinite& bad = *aggregator.nonfinite();
    const std::string reason = fmt::format("{} at loss scale {:g}, which is {:g} from now on",
                                           bad.what, too_large_, scale_.value());
    LogInfo("skipped step {}: {}{}", step_, reason, From(bad));
    Record(bad, reason, 0);
  } else {
    CountSkipped(bad_loss_ ? *bad_loss_ : *aggregator.nonfinite());
  }
}

void NonfinitePolicy::CountSkipped(const Nonfinite& bad) {
  ++skipped_in_a_row_;
  LogWarning("skipped step {}: {}{} ({} in a row)", step_, bad.what, From(bad), skipped_in_a_row_);
  Record(bad, bad.what, skipped_in_a_row_);
  if (skipped_in_a_row_ < settings_.max_skipped_steps()) return;
  const std::string steps =
      skipped_in_a_row_ == 1 ? "1 step" : fmt::format("{} steps", skipped_in_a_row_);
  Fail(bad, steps + " skipped in a row (run.max_skipped_steps)");
}

void NonfinitePolicy::Record(const Nonfinite& bad, const std::string& reason, int64_t in_a_row) {
  events::Event event;
  events::SkippedStep& skipped = *event.mutable_skipped_step();
  skipped.set_step(step_);
  skipped.set_reason(reason);
  skipped.set_in_a_row(in_a_row);
  if (bad.rank) skipped.set_rank(*bad.rank);
  recorder_.Record(event);
}

std::string NonfinitePolicy::From(const Nonfinite& bad) const {
  return bad.rank ? ", from " + roster_.Name(*bad.rank) : "";
}

void NonfinitePolicy::Fail(const Nonfinite& bad, const std::string& why) {
  failure_.Set({ExitCode::kNonfinite, std::nullopt,
                fmt::format("{} at step {}{}: {}. Try a smaller learning rate", bad.what, step_,
                            From(bad), why)});
}

}  // namespace muster
