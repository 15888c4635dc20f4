// The share of a step's wall time in which no rank computed, and the share lost to uneven ranks.
// Their remedies differ: a faster server, transport or input; or ranks of equal speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/wire.pb.h"

namespace muster {

// A worker's times for a step as it reports them, or sums of such times.
struct StepParts {
  double compute_ms = 0, input_ms = 0, push_ms = 0, wait_ms = 0, pull_ms = 0;

  void Add(const StepParts& other);
  StepParts Over(double divisor) const;
};
StepParts PartsOf(const wire::StepTimes& times);

// The wall time T of one step, or the sum of several, in milliseconds. With C_r the compute and
// I_r the input time of rank r:
//   overhead   T - max C_r                   everything except the slowest rank's compute
//   input      max (C_r + I_r) - max C_r     how much the input pipeline lengthened the step
//   imbalance  max C_r - mean C_r            the average wait for the slowest rank
// So mean C_r + imbalance + overhead = T. The server measures T from one step end to the next. If
// its thread is scheduled late, one step looks long, the next one short, and its overhead can be
// negative. Therefore only sums are meaningful, and shares are computed from sums: the mean over
// steps, weighted by their length.
struct StepBalance {
  int64_t steps = 0;
  double step_ms = 0, overhead_ms = 0, input_ms = 0, imbalance_ms = 0;
  StepParts parts;  // mean of the ranks

  void Add(const StepBalance& other);
  double Share(double ms) const { return step_ms > 0 ? ms / step_ms : 0; }
};

// Combines a step's duration, which the server measures, with its ranks' times, which they report
// before or soon after the step ends. Owner: the server's loop.
class StepBalances {
 public:
  explicit StepBalances(size_t ranks = 0, int64_t first_step = 0)
      : ranks_(ranks), running_(first_step) {}

  // Each returns the balance of a step that is now complete. Steps end in order, from the first; a
  // step of 0 seconds is excluded because its duration is unknown. Reports of steps other than the
  // current and the previous one are ignored.
  std::optional<StepBalance> AddTimes(const wire::StepTimes& times);
  std::optional<StepBalance> EndStep(int64_t step, double seconds);
  // Sets the number of ranks that report. The step of the change may have no balance.
  void SetRanks(size_t ranks) { ranks_ = ranks; }

 private:
  struct Step {
    int64_t step = 0;
    std::optional<double> ms;
    size_t reports = 0;
    double slowest_compute_ms = 0, slowest_busy_ms = 0;
    StepParts sum;
  };
  Step& At(int64_t step);
  std::optional<StepBalance> TakeIfComplete(const Step& open);

  size_t ranks_;
  int64_t running_;         // the step that ends next
  std::vector<Step> open_;  // the one or two incomplete steps
};

}  // namespace muster
