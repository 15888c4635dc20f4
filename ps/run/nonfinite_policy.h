// Handles losses, gradients and weights that are not finite (run.on_nonfinite).
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

namespace muster {

class NonfinitePolicy {
 public:
  // All must outlive this object.
  NonfinitePolicy(const config::Run& settings, const Roster& roster, Recorder& recorder,
                  FirstFailure& failure)
      : settings_(settings), roster_(roster), recorder_(recorder), failure_(failure) {}

  bool may_skip() const { return settings_.on_nonfinite() == config::Run::SKIP_STEP; }

  void BeginStep(int64_t step);
  // The number of consecutive skipped steps, which checkpoints save.
  int64_t skipped_in_a_row() const { return skipped_in_a_row_; }
  void Restore(int64_t skipped_in_a_row) { skipped_in_a_row_ = skipped_in_a_row; }
  // Checks a loss of this step. With ABORT, a non-finite loss fails the job.
  void CheckLoss(uint32_t rank, int64_t slice, double loss);
  // Whether this step's gradient must not be applied.
  bool bad_loss() const { return bad_loss_.has_value(); }
  // Fails the job if the aggregator found a non-finite value that cannot be skipped.
  void CheckGradient(const Aggregator& aggregator);
  // Called when the step is complete. With SKIP_STEP, fails the job after too many skipped steps.
  void EndStep(const Aggregator& aggregator);

 private:
  std::string From(const Nonfinite& bad) const;
  void Fail(const Nonfinite& bad, const std::string& why);
  void CountSkipped(const Nonfinite& bad);

  const config::Run& settings_;
  const Roster& roster_;
  Recorder& recorder_;
  FirstFailure& failure_;
  int64_t step_ = 0;
  std::optional<Nonfinite> bad_loss_;  // the first one of this step
  int64_t skipped_in_a_row_ = 0;
};

}  // namespace muster
