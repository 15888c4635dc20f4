// Divides the slices of a step among the workers (cluster.shares): evenly or by their measured
// speed. Does not change the bits of the result.
//
// Owner: the dispatcher.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/plan/assignment.h"
#include "common/plan/step_plan.h"
#include "proto/events.pb.h"
#include "proto/wire.pb.h"
#include "ps/step/share_policy.h"
#include "ps/step/slice_times.h"

namespace muster {

class Shares {
 public:
  // `seats`: the number of possible ranks.
  Shares(bool measured, uint32_t seats)
      : measured_(measured), times_(seats), disturbed_until_(seats, -1) {}

  // Divides the slices evenly among the initial workers, starting with this step.
  void Begin(const StepPlan& plan, int64_t first_step, uint32_t workers);
  // The current share of each rank.
  const Assignment& assignment() const { return assignment_; }
  // The ranks that have a share.
  const std::vector<uint32_t>& sharing() const { return sharing_; }
  bool by_slice() const { return by_slice_; }

  // Divides the slices among these ranks from `step` on. The shares change if the ranks or their
  // speeds changed. Each rank gets adjacent slices and adds up their gradients where it can; with
  // `by_slice`, it pushes each one separately. Returns an event if there is something to report.
  std::optional<events::SharesChanged> Divide(int64_t step, const std::vector<uint32_t>& ranks,
                                              bool by_slice);

  void AddTimes(uint32_t rank, const wire::StepTimes& times);
  // Ignores the rank's times up to this step, because it also computes other work.
  void Disturbed(uint32_t rank, int64_t step);
  // Called when the rank was reset `seconds` after the start of a step. `done`: the number of its
  // slices that it had finished.
  void WasLate(uint32_t rank, double seconds, int64_t done);
  void Forget(uint32_t rank) { times_.Forget(rank); }
  void EndStep(int64_t step, double seconds) { policy_.EndStep(step, seconds); }

  // Relative times of these ranks for equal work; empty: all equal.
  std::vector<double> TimesOf(const std::vector<uint32_t>& ranks) const;

 private:
  struct Division {
    std::vector<int64_t> slices;  // by sharing rank
    std::optional<events::SharesChanged> change;
  };
  Division AmongOthers(int64_t step, const std::vector<uint32_t>& ranks);
  // Returns nothing if the shares stay unchanged.
  std::optional<Division> Otherwise(int64_t step);
  events::SharesChanged Describe(int64_t step, const std::vector<uint32_t>& ranks,
                                 const std::vector<int64_t>& slices,
                                 const std::vector<double>& times);

  const bool measured_;
  StepPlan plan_;
  Assignment assignment_;
  std::vector<uint32_t> sharing_;
  std::vector<int64_t> slices_;  // by sharing rank
  bool by_slice_ = false;
  SliceTimes times_;
  std::vector<int64_t> disturbed_until_;  // last step whose times are ignored, by rank
  SharePolicy policy_;
  bool uneven_ = false;
};

// "from step 41 on: rank 0 11 slices (before: 8), rank 1 5 (8); …"
std::string TextOf(const events::SharesChanged& change);

}  // namespace muster
