// The share of a step's wall time in which no rank computed, and that of uneven ranks. The two
// have different remedies: a faster server, transport or input; and ranks that are equally fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/wire.pb.h"

namespace muster {

// Where a worker's time of a step goes, as it reports it. Or sums of that.
struct StepParts {
  double compute_ms = 0, input_ms = 0, push_ms = 0, wait_ms = 0, pull_ms = 0;

  void Add(const StepParts& other);
  StepParts Over(double divisor) const;
};
StepParts PartsOf(const wire::StepTimes& times);

// One step's wall time T, or the sum of several, in milliseconds; and of it, with C_r the compute
// and I_r the input time of rank r:
//   overhead   T - max C_r                   all that is not the slowest rank's compute
//   input      max (C_r + I_r) - max C_r     … of which the input pipeline made the step longer
//   imbalance  max C_r - mean C_r            what the other ranks wait for the slowest, on average
// So mean C_r + imbalance + overhead = T. T is taken from end to end at the server, whose thread
// may get its core late: then one step looks long and the next one short, and its overhead is below
// 0. Only sums mean something, and shares are of sums: the mean over steps, weighted with their
// length.
struct StepBalance {
  int64_t steps = 0;
  double step_ms = 0, overhead_ms = 0, input_ms = 0, imbalance_ms = 0;
  StepParts parts;  // the mean of the ranks

  void Add(const StepBalance& other);
  double Share(double ms) const { return step_ms > 0 ? ms / step_ms : 0; }
};

// Brings together a step's length, which the server measures, and its ranks' times, which they
// report: before the step ends, or soon after. Owner: the server's loop.
class StepBalances {
 public:
  explicit StepBalances(size_t ranks = 0, int64_t first_step = 0)
      : ranks_(ranks), running_(first_step) {}

  // Each returns the balance of a step if it is now complete. Steps end in order, from the first;
  // one of 0 seconds is left out: its length is not known. A report can only be of the running step
  // or the one before; others are ignored.
  std::optional<StepBalance> AddTimes(const wire::StepTimes& times);
  std::optional<StepBalance> EndStep(int64_t step, double seconds);
  // From now on so many ranks report. Of a step in which that changes nothing may be known.
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
  std::vector<Step> open_;  // the one or two that are not complete
};

}  // namespace muster
