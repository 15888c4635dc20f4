// The work of a step. For each chunk and slice of the current step, the gradient has arrived, or is
// assigned to exactly one open order, or is unassigned.
//
// An order names a step, subtrees of slices, the missing chunks of their gradients, and gradient
// buffers of its worker. Losses and gradients count only under an open order. A worker has one
// order for the current step and, when all losses of that step have arrived, one for the next step.
// Slices of lost and slow workers are assigned in additional urgent orders, one at a time.
//
// Pure logic without a clock: `now` is passed in. Owner: the dispatcher.
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
  // One subtree, whose gradient is in one buffer.
  struct Part {
    TreeNode node;
    std::vector<bool> missing;  // by chunk
    size_t missing_count = 0;
    bool in_use = false;  // a chunk that has arrived stays in its buffer until the step ends
  };
  uint64_t id = 0;
  uint32_t rank = 0;
  int64_t step = 0;
  uint32_t buffer = 0;  // buffer of the first part; later parts use the following buffers
  bool urgent = false;  // slices taken over from other workers
  bool open = true;
  std::chrono::steady_clock::time_point given;
  std::vector<Part> parts;
  std::set<int64_t> losses;  // slices whose loss was reported under this order

  // Whether all gradients, and therefore all losses, have arrived.
  bool IsDelivered() const;
};

class StepWork {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `chunks`: number of chunks of a gradient.
  explicit StepWork(size_t chunks) : chunks_(chunks), arrived_(chunks) {}
  void Begin(const StepPlan& plan) { plan_ = plan; }

  // Starts a step. Orders of earlier steps are dropped.
  void BeginStep(int64_t step);
  // Assigns a worker its own share of a step, in buffers 0, 1, ....
  const StepOrder& Give(uint32_t rank, int64_t step, std::span<const TreeNode> nodes, Time now);
  // Assigns unassigned slices of the current step to helpers, at most one piece each. Helpers have
  // the weights of the step and `buffers` gradient buffers.
  std::vector<StepOrder> GiveUnassigned(std::vector<uint32_t> helpers, uint32_t buffers,
                                        const PoisonWatch& poison, Time now);
  // Whether some slices may be unassigned.
  bool some_unassigned() const { return some_unassigned_; }
  // Whether the last GiveUnassigned left slices that wait for a free worker.
  bool needs_helpers() const { return needs_helpers_; }
  // When the next pause of a poison suspect ends.
  const std::optional<Time>& paused_until() const { return paused_until_; }

  // Closes the orders of a worker. Gradients that have arrived and their buffers stay valid.
  void Close(uint32_t rank);
  // Closes the orders of a lost worker. Its successor may use all buffers.
  void Lose(uint32_t rank);

  // Adds a loss under an order of the current step, or returns kUnexpected and sets `why`.
  StepLosses::Added AddLoss(uint32_t rank, const wire::SliceLoss& loss, std::string& why);
  // Returns the order of an expected gradient: the losses of its slices have arrived, but this
  // chunk of the subtree has not. If the gradient is not expected, returns null and sets `why`.
  const StepOrder* Find(uint32_t rank, const wire::GradientPart& part, std::string& why) const;
  void Arrive(const StepOrder& order, const wire::GradientPart& part);

  // Whether the worker still owes gradients of this step.
  bool Owes(uint32_t rank, int64_t step) const;
  // Whether the worker still owes gradients of any step.
  bool Owes(uint32_t rank) const;
  // Whether the worker still owes losses of the current step.
  bool Computes(uint32_t rank) const;
  // The workers that owe gradients of the current step and have had their order for more than
  // `limit`, measured from `since` if that is later.
  std::vector<uint32_t> Late(Time now, Time since, std::chrono::steady_clock::duration limit) const;
  // The slices that a lost worker would have computed next: those of its first incomplete subtree.
  std::vector<int64_t> NextSlices(uint32_t rank, bool urgent) const;
  // The number of slices that the worker has not delivered, for all steps.
  int64_t OpenSlices(uint32_t rank) const;
  // The number of losses that the worker reported for its own share of the current step.
  int64_t OwnLosses(uint32_t rank) const;
  // Called after the server was suspended. Extends all deadlines by this time.
  void Extend(std::chrono::steady_clock::duration suspension);

  int64_t step() const { return step_; }
  const StepLosses& losses() const { return losses_; }
  const std::deque<StepOrder>& orders() const { return orders_; }  // by id

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
