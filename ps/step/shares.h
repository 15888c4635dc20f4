// How the slices of a step are divided among the workers (cluster.shares): evenly, or by how fast
// each has been. Has no influence on the bits of the result.
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
  // `seats`: ranks are below.
  Shares(bool measured, uint32_t seats)
      : measured_(measured), times_(seats), disturbed_until_(seats, -1) {}

  // Even shares for the workers that the run starts with, from this step on.
  void Begin(const StepPlan& plan, int64_t first_step, uint32_t workers);
  // The share of each rank as it stands, and who has one.
  const Assignment& assignment() const { return assignment_; }
  const std::vector<uint32_t>& sharing() const { return sharing_; }
  bool by_slice() const { return by_slice_; }

  // These ranks divide the slices from `step` on: in other shares if there are other ranks than
  // before, or if others are faster. Each has neighbouring slices, whose gradients it adds up where
  // it can, or, with `by_slice`, pushes one by one. Returns what is to be told, if anything.
  std::optional<events::SharesChanged> Divide(int64_t step, const std::vector<uint32_t>& ranks,
                                              bool by_slice);

  // A worker has reported a step, of which it computed its share.
  void AddTimes(uint32_t rank, const wire::StepTimes& times);
  // It computes something else besides: its times of the steps up to this one mean nothing.
  void Disturbed(uint32_t rank, int64_t step);
  // It was reset after so many seconds of a step, and had done that many of its slices.
  void WasLate(uint32_t rank, double seconds, int64_t done);
  void Forget(uint32_t rank) { times_.Forget(rank); }
  void EndStep(int64_t step, double seconds) { policy_.EndStep(step, seconds); }

  // What each of these takes for as much work as any other; empty: the same.
  std::vector<double> TimesOf(const std::vector<uint32_t>& ranks) const;

 private:
  struct Division {
    std::vector<int64_t> slices;  // of each rank that shares
    std::optional<events::SharesChanged> change;
  };
  Division AmongOthers(int64_t step, const std::vector<uint32_t>& ranks);
  // Nothing: as before.
  std::optional<Division> Otherwise(int64_t step);
  events::SharesChanged Describe(int64_t step, const std::vector<uint32_t>& ranks,
                                 const std::vector<int64_t>& slices,
                                 const std::vector<double>& times);

  const bool measured_;
  StepPlan plan_;
  Assignment assignment_;
  std::vector<uint32_t> sharing_;
  std::vector<int64_t> slices_;  // of each of these
  bool by_slice_ = false;
  SliceTimes times_;
  std::vector<int64_t> disturbed_until_;  // of each rank
  SharePolicy policy_;
  bool uneven_ = false;
};

// "from step 41 on: rank 0 11 slices (before: 8), rank 1 5 (8); …"
std::string TextOf(const events::SharesChanged& change);

}  // namespace muster
