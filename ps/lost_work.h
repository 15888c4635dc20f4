// What of a step nobody computes any more, and in which pieces it is given to others; and which
// work ends whoever does it.
//
// Owner: the coordinator.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "common/plan/slices.h"

namespace muster {

// Something that a worker may be lost at: a slice of the step, or a block of the evaluation.
struct WorkItem {
  enum class Kind { kSlice, kBlock };
  Kind kind = Kind::kSlice;
  int64_t index = 0;
  bool operator==(const WorkItem&) const = default;
  bool operator<(const WorkItem& other) const {
    return std::tie(kind, index) < std::tie(other.kind, other.index);
  }
};

class LostWork {
 public:
  // What ends so many workers in one step is not given to another one.
  static constexpr int kMostKills = 3;
  // Workers that end together (their host, the system's memory) are not noticed together: what the
  // first one left is given to others that have ended, too. So what has ended all but one of
  // kMostKills workers is given to nobody for this long.
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kHoldBack{1};

  void BeginStep() { kills_.clear(); }

  // A worker was lost that was at one of these, which were given to it together. What has ended
  // kMostKills workers by now, if there is something.
  std::optional<WorkItem> OnLost(const std::vector<WorkItem>& was_at,
                                 Clock::time_point now = Clock::now());
  // A worker was lost that may have been at it: it is given out by itself, to who has nothing else.
  bool Suspects(const WorkItem& item) const { return kills_.contains(item); }
  // Until when it is to be given to nobody, if that is later than now.
  std::optional<Clock::time_point> HeldBackUntil(const WorkItem& item,
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
  std::map<WorkItem, Kills> kills_;  // in this step
};

}  // namespace muster
