#include "common/plan/count_limits.h"

#include <fmt/core.h>

#include "common/base/text.h"

namespace muster {

std::string CountTrouble(const StepPlan& plan, int64_t test_samples, int64_t evaluation_batch) {
  if (plan.drop_last && plan.global_batch > plan.train_samples) {
    return fmt::format(
        "every epoch would be empty: a batch has {} samples, the training set {}, and a smaller "
        "last batch is dropped (run.drop_last)",
        FormatCount(plan.global_batch), FormatCount(plan.train_samples));
  }
  if (!plan.IsSane()) {
    return fmt::format(
        "{} steps with a batch of {} on {} training samples: expected a batch and a training set "
        "of at most {} samples each, and at most 2^62 samples in all steps; choose fewer steps "
        "(run.steps, run.epochs) or a smaller batch",
        FormatCount(plan.total_steps), FormatCount(plan.global_batch),
        FormatCount(plan.train_samples), FormatCount(StepPlan::kMostSamples));
  }
  const int64_t blocks =
      test_samples / evaluation_batch + (test_samples % evaluation_batch != 0 ? 1 : 0);
  if (blocks <= kMostTestBlocks) return "";
  return fmt::format(
      "{} test samples: expected at most {} blocks of evaluation.batch samples, got {} of {}; set "
      "evaluation.batch to {} or more",
      FormatCount(test_samples), FormatCount(kMostTestBlocks), FormatCount(blocks),
      evaluation_batch, (test_samples - 1) / kMostTestBlocks + 1);
}

}  // namespace muster
