// The work of a step. For each chunk and slice of the step under way, the gradient has
// arrived, or it is assigned to exactly one open order, or it is unassigned.
//
// An order names a step, subtrees of slices, the chunks of their gradients that are still missing,
// and gradient buffers of its worker. Losses and gradients count only under an open order. A worker
// has one order for the step under way and, once all losses of that step are in, one for the next;
// the slices of lost and late workers come in further, urgent orders, one at a time.
//
// A decider without a clock: `now` is passed in. Owner: the dispatcher.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "proto/wire.pb.h"
#include "ps/step/arrived_gradients.h"
#include "ps/step/poison_watch.h"
#include "ps/step/step_losses.h"

namespace muster {

struct StepOrder {
  // One subtree, whose gradient lies in one buffer.
  struct Part {
    TreeNode node;
    std::vector<bool> missing;  // of each chunk
    size_t missing_count = 0;
    bool in_use = false;  // a chunk that has arrived lies in its buffer until the step ends
  };
  uint64_t id = 0;
  uint32_t rank = 0;
  int64_t step = 0;
  uint32_t buffer = 0;  // of the first part; each further part has the next one
  bool urgent = false;  // slices that somebody else was to compute
  bool open = true;
  std::chrono::steady_clock::time_point given;
  std::vector<Part> parts;
  std::set<int64_t> losses;  // slices whose loss was reported under this order

  // All gradients have arrived, and so have their losses.
  bool IsDelivered() const;
};

class StepWork {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `chunks` of a gradient.
  explicit StepWork(size_t chunks) : chunks_(chunks), arrived_(chunks) {}
  void Begin(const StepPlan& plan) { plan_ = plan; }

  // Nothing of this step has arrived. Orders of earlier steps are forgotten.
  void BeginStep(int64_t step);
  // Gives a worker its own part of a step, in buffers 0, 1, ….
  const StepOrder& Give(uint32_t rank, int64_t step, std::span<const TreeNode> nodes, Time now);
  // Gives unassigned slices of the step under way to helpers, at most one piece each. A helper has
  // the weights of the step and so many gradient buffers.
  std::vector<StepOrder> GiveUnassigned(std::vector<uint32_t> helpers, uint32_t buffers,
                                        const PoisonWatch& poison, Time now);
  // Some slices are unassigned, as far as is known.
  bool some_unassigned() const { return some_unassigned_; }
  // Some of these have waited for a free worker since GiveUnassigned.
  bool needs_helpers() const { return needs_helpers_; }
  // When the pause of a slice ends that waits for that.
  const std::optional<Time>& paused_until() const { return paused_until_; }

  // Closes the orders of a worker. What has arrived stays, and so does the memory that it lies in.
  void Close(uint32_t rank);
  // The same of a worker that is gone with its memory: its successor has all buffers.
  void Lose(uint32_t rank);

  // A loss under an order of the step under way. Otherwise kUnexpected, and `why` says what is
  // wrong.
  StepLosses::Added AddLoss(uint32_t rank, const wire::SliceLoss& loss, std::string& why);
  // The order of a gradient that is expected: this chunk of this subtree has not arrived, and the
  // losses of its slices have. Null: `why` says what is wrong.
  const StepOrder* Find(uint32_t rank, const wire::GradientPart& part, std::string& why) const;
  void Arrive(const StepOrder& order, const wire::GradientPart& part);

  // Whether the worker still owes gradients of this step; … or of any step.
  bool Owes(uint32_t rank, int64_t step) const;
  bool Owes(uint32_t rank) const;
  // Whether the worker still has to report losses of the step under way.
  bool Computes(uint32_t rank) const;
  // The workers that owe gradients of the step under way, and have had their order for longer than
  // `limit`, or since `since` if that is later.
  std::vector<uint32_t> Late(Time now, Time since, std::chrono::steady_clock::duration limit) const;
  // The slices that a lost worker would have computed next: those missing of its first subtree.
  std::vector<int64_t> NextSlices(uint32_t rank, bool urgent) const;
  // Slices that the worker holds and has not delivered, of all steps.
  int64_t OpenSlices(uint32_t rank) const;
  // Slices of the worker's own part of the step under way whose loss it has reported.
  int64_t OwnLosses(uint32_t rank) const;
  // The server was suspended: orders count from so much later on.
  void Extend(std::chrono::steady_clock::duration suspension);

  int64_t step() const { return step_; }
  const StepLosses& losses() const { return losses_; }
  const std::deque<StepOrder>& orders() const { return orders_; }  // by number

 private:
  std::optional<uint32_t> FreeBuffer(uint32_t rank, uint32_t buffers) const;
  StepOrder& Add(uint32_t rank, int64_t step, uint32_t buffer, Time now);
  std::vector<bool> Unassigned() const;
  void Collect(const TreeNode& node, const std::vector<bool>& unassigned, const PoisonWatch& poison,
               std::vector<TreeNode>& pieces) const;
  std::vector<TreeNode> Pieces(const std::vector<bool>& unassigned, const PoisonWatch& poison,
                               size_t helpers) const;

  const size_t chunks_;
  StepPlan plan_;
  int64_t step_ = -1;
  StepLosses losses_;
  ArrivedGradients arrived_;
  uint64_t next_id_ = 1;
  std::deque<StepOrder> orders_;
  bool some_unassigned_ = false, needs_helpers_ = false;
  std::optional<Time> paused_until_;
};

}  // namespace muster
