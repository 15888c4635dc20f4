// Handles losses, gradients and weights that are not finite (run.on_nonfinite), and adapts the loss
// scale.
//
// Owner: the run. Used on the loop thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/config.pb.h"
#include "ps/members/roster.h"
#include "ps/record/recorder.h"
#include "ps/run/first_failure.h"
#include "ps/update/aggregator.h"
#include "ps/update/loss_scale.h"

namespace muster {

class NonfinitePolicy {
 public:
  // All must outlive this object.
  NonfinitePolicy(const config::Run& settings, const Roster& roster, LossScale& scale,
                  Recorder& recorder, FirstFailure& failure)
      : settings_(settings),
        roster_(roster),
        scale_(scale),
        recorder_(recorder),
        failure_(failure) {}

  bool may_skip() const { return settings_.on_nonfinite() == config::Run::SKIP_STEP; }

  void BeginStep(int64_t step);
  // The number of consecutive skipped steps, which checkpoints save.
  int64_t skipped_in_a_row() const { return skipped_in_a_row_; }
  void Restore(int64_t skipped_in_a_row) { skipped_in_a_row_ = skipped_in_a_row; }
  // Checks a loss of this step. With ABORT, a non-finite loss fails the job.
  void CheckLoss(uint32_t rank, int64_t slice, double loss);
  // Whether this step's gradient must not be applied.
  bool bad_loss() const { return bad_loss_.has_value(); }
  // Whether the loss scale of the next step is known. If there is one, this is when the whole
  // gradient is known; the first call then changes the scale.
  bool KnowsNextScale(const Aggregator& aggregator);
  // Fails the job if the aggregator found a non-finite value that cannot be skipped.
  void CheckGradient(const Aggregator& aggregator);
  // Called when the step is complete. With SKIP_STEP, fails the job after too many skipped steps.
  void EndStep(const Aggregator& aggregator);

 private:
  std::string From(const Nonfinite& bad) const;
  void Fail(const Nonfinite& bad, const std::string& why);
  void CountSkipped(const Nonfinite& bad);
  void Record(const Nonfinite& bad, const std::string& reason, int64_t in_a_row);

  const config::Run& settings_;
  const Roster& roster_;
  LossScale& scale_;
  Recorder& recorder_;
  FirstFailure& failure_;
  int64_t step_ = 0;
  std::optional<Nonfinite> bad_loss_;  // the first one of this step
  bool counted_ = false;               // whether this step has been counted for the scale
  double too_large_ = 0;               // the scale that made this step's gradient not finite, or 0
  int64_t skipped_in_a_row_ = 0;
};

}  // namespace muster
