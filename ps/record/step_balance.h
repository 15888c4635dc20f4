// The share of a step's wall time in which no rank computed, and the share lost to uneven ranks. A
// faster server, transport or input reduces the first; ranks of equal speed reduce the second.
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

// The wall time T of one step, or the sum of several, in milliseconds. With C_r the compute and I_r
// the input time of rank r:
//   overhead   T - max C_r                   everything except the slowest rank's compute
//   input      max (C_r + I_r) - max C_r     how much the input pipeline lengthened the step
//   imbalance  max C_r - mean C_r            the average wait for the slowest rank
// So mean C_r + imbalance + overhead = T. The server measures T from one step end to the next. If
// its thread is scheduled late, one step looks long and the next one short, and the overhead of the
// short one can be negative. Only sums are therefore meaningful, and shares are computed from sums:
// they are means over the steps, weighted by length.
struct StepBalance {
  int64_t steps = 0;
  double step_ms = 0, overhead_ms = 0, input_ms = 0, imbalance_ms = 0;
  StepParts parts;  // mean over the ranks

  void Add(const StepBalance& other);
  double Share(double ms) const { return step_ms > 0 ? ms / step_ms : 0; }
};

// Combines a step's duration, which the server measures, with its ranks' times, which they report
// before or soon after the step ends. Owner: the server's loop.
class StepBalances {
 public:
  explicit StepBalances(size_t ranks = 0, int64_t first_step = 0)
      : ranks_(ranks), running_(first_step) {}

  // Both functions return the balance of a step that is now complete. Steps end in order, starting
  // with the first. A step of 0 seconds is excluded because its duration is unknown. Reports of
  // steps other than the current and the previous one are ignored.
  std::optional<StepBalance> AddTimes(const wire::StepTimes& times);
  std::optional<StepBalance> EndStep(int64_t step, double seconds);
  // Sets the number of ranks that report. The current step may then have no balance.
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
