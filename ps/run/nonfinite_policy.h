// What becomes of a step with a loss, a gradient or a weight that is not finite: run.on_nonfinite.
//
// Owner: the run. Used in the loop's thread.
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
  // All outlive this.
  NonfinitePolicy(const config::Run& settings, const Roster& roster, Recorder& recorder,
                  FirstFailure& failure)
      : settings_(settings), roster_(roster), recorder_(recorder), failure_(failure) {}

  bool may_skip() const { return settings_.on_nonfinite() == config::Run::SKIP_STEP; }

  void BeginStep(int64_t step);
  // For a checkpoint.
  int64_t skipped_in_a_row() const { return skipped_in_a_row_; }
  void Restore(int64_t skipped_in_a_row) { skipped_in_a_row_ = skipped_in_a_row; }
  // A loss of this step. With ABORT, one that is not finite is a failure of the job.
  void CheckLoss(uint32_t rank, int64_t slice, double loss);
  // Whether this step's gradient is not to be used.
  bool bad_loss() const { return bad_loss_.has_value(); }
  // Sets a failure if the aggregator has found what cannot be skipped.
  void CheckGradient(const Aggregator& aggregator);
  // The step is complete. With SKIP_STEP, too many that changed nothing are a failure.
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
  std::optional<Nonfinite> bad_loss_;  // of this step
  int64_t skipped_in_a_row_ = 0;
};

}  // namespace muster
