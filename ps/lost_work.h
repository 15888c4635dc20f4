// What of a step nobody computes any more, and in which pieces it is given to others.
//
// Owner: the coordinator.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "common/plan/slices.h"
#include "ps/leases.h"

namespace muster {

class LostWork {
 public:
  // A slice that ends so many workers in one step is not given to another one.
  static constexpr int kMostKills = 3;
  // Workers that end together (their host, the system's memory) are not noticed together: what the
  // first one left is given to others that have ended, too. So a slice that has ended all but one
  // of kMostKills workers is given to nobody for this long.
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kHoldBack{1};

  void BeginStep() { kills_.clear(); }

  // A worker was lost while it had these leases of the step, which it was to compute in this order.
  // `missing`: whether something of a slice has not come. The slice that has ended kMostKills
  // workers by now, if there is one.
  std::optional<int64_t> OnLost(const std::vector<Lease>& leases, int64_t slices,
                                const std::function<bool(int64_t slice)>& missing,
                                Clock::time_point now = Clock::now());
  // Until when the slice is to be given to nobody, if that is later than now.
  std::optional<Clock::time_point> HeldBackUntil(int64_t slice,
                                                 Clock::time_point now = Clock::now()) const;

  struct Step {
    int64_t slices = 0;
    std::function<bool(int64_t slice)> orphaned;         // it is missing, and nobody is at it
    std::function<bool(const TreeNode& node)> is_whole;  // of each chunk all of it is here, or none
  };
  // The orphaned slices as few subtrees, though not fewer than there are helpers. What was with a
  // worker that was lost comes slice by slice, so that a slice that ends its worker is found.
  std::vector<TreeNode> Pieces(const Step& step, size_t helpers) const;

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  void Collect(const Step& step, const TreeNode& node, std::vector<TreeNode>& pieces) const;

  struct Kills {
    int count = 0;
    Clock::time_point last;
  };
  std::map<int64_t, Kills> kills_;  // of each slice, in this step
};

}  // namespace muster
