// Finds poison work: a slice of a step or a block of an evaluation that several workers did not
// survive. Pure logic without a clock.
//
// Owner: the dispatcher.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
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
  // After this many losses in one step, the work is not assigned again.
  static constexpr int kMostLosses = 3;
  // Workers that die together, with their host or for lack of memory, are not detected together.
  // The work of the first one may be assigned to others that are also dead. The last attempt
  // therefore waits this long after the previous loss.
  static constexpr std::chrono::seconds kPause{1};

  void BeginStep();

  // Called when `items`, in processing order, are taken from a slow worker. It may hang in one of
  // them: they are suspects until Forget.
  void OnReset(uint32_t rank, std::vector<WorkItem> items) { taken_[rank] = std::move(items); }
  // Called when the worker is ready again, or is gone.
  void Forget(uint32_t rank) { taken_.erase(rank); }
  // Called when a worker that held `items`, in processing order, was lost. If some were taken
  // from it, it held those. All of them become suspects. Suspects are assigned separately, so a
  // second loss identifies one item. Returns the item that kMostLosses workers did not survive, if
  // any.
  std::optional<WorkItem> OnLost(uint32_t rank, std::vector<WorkItem> items, Time now);
  bool Suspects(const WorkItem& item) const;
  // When the item may be assigned again; none: now.
  std::optional<Time> PausedUntil(const WorkItem& item, Time now) const;

  struct Losses {
    int count = 0;
    Time last;
  };
  const std::map<WorkItem, Losses>& losses() const { return losses_; }  // in this step
  // The items taken from workers that may hang, by rank.
  const std::map<uint32_t, std::vector<WorkItem>>& taken() const { return taken_; }

 private:
  std::map<WorkItem, Losses> losses_;
  std::map<uint32_t, std::vector<WorkItem>> taken_;
};

}  // namespace muster
