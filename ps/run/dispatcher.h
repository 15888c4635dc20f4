// Assigns the work of a run: the slices of each step and the blocks of each evaluation. Reassigns
// the work that lost or slow workers have not delivered (docs/DESIGN.md, "Recovery").
//
// Pure logic: no link, no clock. `now` is passed in; messages and events go to members and
// recorder.
//
// Owner: the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "ps/members/membership.h"
#include "ps/run/late_workers.h"
#include "ps/run/run_keeper.h"
#include "ps/run/run_position.h"
#include "ps/run/run_work.h"
#include "ps/run/weights_feed.h"

namespace muster {

class Dispatcher {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // All must outlive this object.
  Dispatcher(const config::Config& config, const Graph& graph, const RunPosition& state,
             Membership& members, WeightsFeed& feed, RunKeeper& keeper, RunWork& work);

  const LateWorkers& late() const { return late_; }
  // The newest step that was ordered.
  int64_t ordered() const { return ordered_; }
  // The step to order as soon as there are enough workers.
  int64_t wanted() const { return wanted_; }

  // Plans the work of a run that starts at the current step.
  void Begin();
  void BeginStep();
  // Called when only evaluations follow.
  void BeginFinalEvaluation();
  // Orders the step now, or as soon as there are enough workers (cluster.min_workers).
  void Want(int64_t step, Time now);
  void OrderEvaluation(int64_t version, wire::EvaluationSet set, Time now);

  // Called when workers joined, left or fell behind. Slices and blocks may now be unassigned.
  void MarkChanged() { changed_ = recovers_; }
  void CatchUp(Time now);
  void OnLoss(uint32_t rank);
  // Called when a gradient has arrived, `seconds` after the start of the step.
  void OnGradient(uint32_t rank, const StepOrder& order, double seconds);
  void OnBlock(uint32_t rank);

  // Marks the work of a lost worker as unassigned.
  struct Dropped {
    int64_t slices = 0, blocks = 0;
  };
  Dropped Drop(uint32_t rank);

  // Resets slow workers while others are idle. The current step has waited since `since`. Returns
  // whether any was reset.
  bool ResetLate(Time now, Time since);
  bool TimeIsUp(Time now) const { return paused_until_ && now >= *paused_until_; }
  void Extend(std::chrono::steady_clock::duration suspension);

 private:
  bool OrderWanted(Time now);
  bool PushesSlices() const;
  void Send(const StepOrder& order);
  void Activate(uint32_t rank);
  void GiveOutSlices(Time now);
  void GiveOutBlocks(Time now);
  void ReleaseLeaving();
  void Reset(uint32_t rank, const char* why, Time now);

  const config::Cluster& cluster_;
  const Graph& graph_;
  const RunPosition& state_;
  Membership& members_;
  WeightsFeed& feed_;
  RunKeeper& keeper_;
  const bool recovers_;
  const bool uses_average_;
  RunWork& work_;
  LateWorkers late_;
  int64_t ordered_ = -1, wanted_ = -1;
  bool changed_ = false;
  std::optional<Time> paused_until_;  // when poison suspects may be assigned again
};

}  // namespace muster
