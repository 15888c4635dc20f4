// A worker's part of training for a program that computes the gradients of its slices itself. It
// adds the slices' gradients and pushes the sums chunk by chunk, while the program's backward pass
// continues.
//
// Owned and used by the main thread. The references must outlive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/memory.h"
#include "common/graph/variable_layout.h"
#include "common/program/program_link.h"
#include "worker/client/client.h"
#include "worker/data/epoch_order.h"
#include "worker/follow/gpu_monitor.h"
#include "worker/follow/order_follower.h"
#include "worker/follow/tree_accumulator.h"

namespace muster {

class ProgramTrainer final : private OrderWork, private SliceSums {
 public:
  ProgramTrainer(const VariableLayout& layout, const program::Join& join, uint64_t seed,
                 Client& client, ProgramLink& link);

  // Follows the server's orders until Stop, and passes the end on to the program. Throws
  // Error(kFailure) if the program reports that it cannot go on.
  void Run();

 private:
  using Clock = std::chrono::steady_clock;

  void Train(Order order) override;
  void TakeOver(Order order) override;
  void ComputeParts(const Order& order);
  bool ComputeSlice(int64_t slice, const SumPlace& place) override;
  void AddUp(const std::vector<size_t>& pending) override;
  // Rounds the floats of the slice's gradient, writes or adds them to the sums, and pushes them if
  // they are complete.
  void Fold(size_t chunk, const SumPlace& place);
  // Level 0 is the gradient buffer to push; each further level holds the sum of a subtree.
  std::span<float> Level(size_t level);

  void Evaluate(const Order& order) override;
  void DropAll() override { part_ = {}; }
  // Copies the order's weights, or their average, to the program when all of them have arrived.
  void Bring(const Order& order, Client::Of of = Client::Of::kWeights);
  // Tells the program that its step is complete if `step` is another one.
  void EnterStep(int64_t step);
  void End(const Order& stop);

  // The slice as work for the program, and the indices of its samples.
  struct Slice {
    program::Work work;
    std::shared_ptr<const SampleOrder> order;
    std::span<const int64_t> indices;
  };
  Slice SliceOf(int64_t step, int64_t index);
  uint64_t SeedOf(program::WorkKind kind, int64_t step, int64_t index) const;
  // Waits until the program wants the next work. Only then may its weights change.
  void AwaitNext();
  // Hands over the next work, when the program wants it.
  void Give(const program::Work& work, std::span<const int64_t> indices);
  ProgramLink::Received Receive();
  void Ask(const ProgramLink::Received& received);
  void Tell(const ProgramLink::Received& received);

  const VariableLayout& layout_;
  const program::Join join_;
  Client& client_;
  OrderFollower follower_;
  ProgramLink& link_;
  const uint64_t seed_;
  const GpuMonitor gpu_;  // the program's
  EpochOrders orders_;
  std::vector<std::vector<size_t>> chunks_of_;  // of each variable
  std::vector<size_t> variables_in_;            // number, of each chunk
  std::vector<Arena> levels_;                   // from level 1
  // The part whose slices are computed.
  struct Part {
    const Order* order = nullptr;
    const OrderPart* part = nullptr;
    std::vector<bool> wanted;  // chunks to push
    bool pushed = false;
  };
  Part part_;
  int64_t step_ = -1;           // of the program; -1: none
  bool program_waits_ = false;  // for the next work
  // The version of the weights that the program has, and whether they are its average.
  int64_t version_ = -1;
  bool average_ = false;
};

}  // namespace muster
