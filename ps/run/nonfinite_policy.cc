#include "ps/run/nonfinite_policy.h"

#include <fmt/core.h>

#include <cmath>

#include "common/base/log.h"
#include "ps/update/unsigned_nan.h"

namespace muster {
namespace {

const char* const kNothingKept = "run.on_nonfinite is ABORT, so this step is discarded";

}  // namespace

void NonfinitePolicy::BeginStep(int64_t step) {
  step_ = step;
  bad_loss_.reset();
}

void NonfinitePolicy::CheckLoss(uint32_t rank, int64_t slice, double loss) {
  if (std::isfinite(loss) || bad_loss_) return;
  bad_loss_ = {fmt::format("the loss of slice {} is {}", slice, UnsignedNan(loss)), rank};
  if (!may_skip()) Fail(*bad_loss_, kNothingKept);
}

void NonfinitePolicy::CheckGradient(const Aggregator& aggregator) {
  if (!aggregator.nonfinite() || aggregator.skips()) return;
  // With SKIP_STEP, nothing is decided while gradients are still being added.
  if (may_skip() && aggregator.sums()) return;
  Fail(*aggregator.nonfinite(),
       may_skip() ? "SKIP_STEP does not apply, because the gradient was finite" : kNothingKept);
}

void NonfinitePolicy::EndStep(const Aggregator& aggregator) {
  if (!aggregator.skips()) {
    skipped_in_a_row_ = 0;
  } else {
    CountSkipped(bad_loss_ ? *bad_loss_ : *aggregator.nonfinite());
  }
}

void NonfinitePolicy::CountSkipped(const Nonfinite& bad) {
  ++skipped_in_a_row_;
  LogWarning("skipped step {}: {}{} ({} in a row)", step_, bad.what, From(bad), skipped_in_a_row_);
  events::Event event;
  events::SkippedStep& skipped = *event.mutable_skipped_step();
  skipped.set_step(step_);
  skipped.set_reason(bad.what);
  skipped.set_in_a_row(skipped_in_a_row_);
  if (bad.rank) skipped.set_rank(*bad.rank);
  recorder_.Record(event);
  if (skipped_in_a_row_ < settings_.max_skipped_steps()) return;
  const std::string steps =
      skipped_in_a_row_ == 1 ? "1 step" : fmt::format("{} steps", skipped_in_a_row_);
  Fail(bad, steps + " skipped in a row (run.max_skipped_steps)");
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
