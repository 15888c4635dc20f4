// Which work ends whoever does it: a slice of a step, or a block of an evaluation, at which several
// workers were lost. A decider without a clock.
//
// Owner: the dispatcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace muster {

struct WorkItem {
  enum class Kind { kSlice, kBlock };
  Kind kind = Kind::kSlice;
  int64_t index = 0;
  bool operator==(const WorkItem&) const = default;
  bool operator<(const WorkItem& other) const {
    return std::tie(kind, index) < std::tie(other.kind, other.index);
  }
};

class PoisonWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // The work that so many workers were lost at in one step is not given to another one.
  static constexpr int kMostLosses = 3;
  // Workers that are killed together, with their host or by the system for its memory, are not
  // noticed together: the first one's work goes to others that are dead, too. So the last attempt
  // waits for this long after the last loss.
  static constexpr std::chrono::seconds kPause{1};

  void BeginStep() { losses_.clear(); }

  // A worker was lost that held `items`, in the order in which it does them. At first all of them
  // are suspected. From then on a suspected item is given out by itself, so that a worker that is
  // lost again was at that one. Returns the item that kMostLosses workers were lost at, if any.
  std::optional<WorkItem> OnLost(const std::vector<WorkItem>& items, Time now);
  bool Suspects(const WorkItem& item) const { return losses_.contains(item); }
  // Until when the item is to be given to nobody; nothing if it may be given out now.
  std::optional<Time> PausedUntil(const WorkItem& item, Time now) const;

  struct Losses {
    int count = 0;
    Time last;
  };
  const std::map<WorkItem, Losses>& losses() const { return losses_; }  // in this step

 private:
  std::map<WorkItem, Losses> losses_;
};

}  // namespace muster
