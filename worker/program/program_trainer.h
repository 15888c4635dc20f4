// A worker's part of training for a program that computes the gradients of its slices itself. It
// follows the server's orders like Trainer, adds the slices' gradients in tree order and pushes the
// sums chunk by chunk, while the program's backward pass continues.
//
// Owned and used by the main thread. The references must outlive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/memory.h"
#include "common/graph/variable_layout.h"
#include "common/program/program_link.h"
#include "worker/client/client.h"
#include "worker/data/epoch_order.h"

namespace muster {

class ProgramTrainer {
 public:
  ProgramTrainer(const VariableLayout& layout, const program::Join& join, uint64_t seed,
                 Client& client, ProgramLink& link);

  // Follows the server's orders until Stop, and passes the end on to the program. Throws
  // Error(kFailure) if the program reports that it cannot go on.
  void Run();

 private:
  using Clock = std::chrono::steady_clock;

  void Train(const Order& order);
  void ComputePart(const Order& order, const OrderPart& part);
  // The state of a part while its slices are computed. Level 0 is the gradient buffer to push; each
  // further level holds the sum of a subtree.
  struct Part {
    const Order& order;
    const OrderPart& part;
    std::vector<bool> wanted;  // chunks to push
    bool pushed = false;
  };
  // Adds the gradients of the slices below `node` into the buffer of `level`. `pending`: the levels
  // to which this subtree is then added, innermost first. `last`: whether `node` is on the
  // rightmost path of the part's tree. Returns false if the slices have no samples.
  bool Accumulate(Part& part, const TreeNode& node, size_t level,
                  const std::vector<size_t>& pending, bool last);
  bool ComputeSlice(Part& part, int64_t slice, size_t level, const std::vector<size_t>& pending,
                    bool last);
  // Rounds the floats of the slice's gradient, writes or adds them to the sums, and pushes them if
  // they are complete.
  void Fold(Part& part, size_t chunk, size_t level, const std::vector<size_t>& pending, bool last);
  std::span<float> Level(const OrderPart& part, size_t level);
  void GiveBackBuffers(int64_t step);

  void Evaluate(const Order& order);
  // Copies W(version), or its average, to the program when all of it has arrived.
  void Bring(int64_t version, Client::Of of = Client::Of::kWeights);
  // Tells the program that its step is complete if `step` is another one.
  void EnterStep(int64_t step);
  void DoUrgent();
  void End(const Order& stop);

  // The slice as work for the program, and the indices of its samples.
  struct Slice {
    program::Work work;
    std::shared_ptr<const SampleOrder> order;
    std::span<const int64_t> indices;
  };
  Slice SliceOf(int64_t step, int64_t index);
  uint64_t SeedOf(program::WorkKind kind, int64_t step, int64_t index) const;
  // Waits until the program wants the next work, and hands it over.
  void Give(const program::Work& work, std::span<const int64_t> indices);
  void AwaitNext();
  ProgramLink::Received Receive();

  const VariableLayout& layout_;
  const program::Join join_;
  Client& client_;
  ProgramLink& link_;
  const uint64_t seed_;
  EpochOrders orders_;
  std::vector<std::vector<size_t>> chunks_of_;  // of each variable
  std::vector<size_t> variables_in_;            // number, of each chunk
  std::vector<Arena> levels_;                   // from level 1
  std::map<size_t, int64_t> buffer_used_;       // buffer → the last step that used it
  int64_t step_ = -1;                           // of the program; -1: none
  // The version of the weights that the program has, and whether they are its average.
  int64_t version_ = -1;
  bool average_ = false;
};

}  // namespace muster
