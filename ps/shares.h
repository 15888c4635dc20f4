// How many slices each worker computes (cluster.shares): as many as any other, or by how fast each
// has been. Has no influence on the bits of the result.
//
// Owner: the coordinator. Used in the loop's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/plan/assignment.h"
#include "common/plan/step_plan.h"
#include "proto/events.pb.h"
#include "proto/wire.pb.h"
#include "ps/share_policy.h"
#include "ps/slice_times.h"

namespace muster {

class Shares {
 public:
  // `seats`: ranks are below.
  Shares(bool measured, uint32_t seats)
      : measured_(measured), times_(seats), disturbed_until_(seats, -1) {}

  void Begin(const StepPlan& plan, int64_t first_step);

  // A worker has reported a step, of which it computed what the newest assignment says.
  void AddTimes(uint32_t rank, const wire::StepTimes& times, const Assignment& assignment);
  // It computes something else besides: its times of the steps up to this one mean nothing.
  void Disturbed(uint32_t rank, int64_t step);
  // It was fenced after so many seconds of a step, and had done that many of its slices.
  void WasLate(uint32_t rank, double seconds, int64_t done);
  void Forget(uint32_t rank) { times_.Forget(rank); }
  void EndStep(int64_t step, double seconds) { policy_.EndStep(step, seconds); }

  // How the slices are divided from a step on …
  struct Division {
    std::vector<int64_t> slices;  // of each rank that shares
    // What is told of it; nothing of even shares among others than before.
    std::optional<events::SharesChanged> change;
  };
  // … among others than before …
  Division AmongOthers(int64_t step, const std::vector<uint32_t>& ranks);
  // … or otherwise among these, of whom each has `slices`. Nothing: as before.
  std::optional<Division> Otherwise(int64_t step, const std::vector<uint32_t>& ranks,
                                    const std::vector<int64_t>& slices);

  // What each of these takes for as much work as any other; empty: the same.
  std::vector<double> TimesOf(const std::vector<uint32_t>& ranks) const;

  // What the summary says of it.
  void Put(events::Summary& summary) const;

 private:
  events::SharesChanged Describe(int64_t step, const std::vector<uint32_t>& ranks,
                                 const std::vector<int64_t>& slices,
                                 const std::vector<double>& times);
  void Tell(Division& division, std::string why);

  const bool measured_;
  StepPlan plan_;
  SliceTimes times_;
  std::vector<int64_t> disturbed_until_;  // of each rank
  SharePolicy policy_;
  bool uneven_ = false;
  std::optional<events::SharesChanged> last_;
  int64_t changes_ = 0;
};

// "from step 41 on: rank 0 11 slices (before: 8), rank 1 5 (8); …"
std::string TextOf(const events::SharesChanged& change);

}  // namespace muster
