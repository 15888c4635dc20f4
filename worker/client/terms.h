// Parsed messages of the protocol: the worker's layout for Hello, the terms of Welcome, orders, and
// the versions of arrived weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/variable_layout.h"
#include "common/link/wire_type.h"
#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "proto/wire.pb.h"

namespace muster {

// One subtree of an order, and the gradient buffer for its sum.
struct OrderPart {
  uint64_t order = 0;  // number under which losses and gradients are reported
  TreeNode node;
  size_t buffer = 0;
};

struct Order {
  // kReset: drop all work that was not sent yet, and send Ready again.
  enum class Kind { kTrain, kEvaluate, kReset, kStop };
  Kind kind;
  // The weights to use, W(version); for kTrain also the step. For kStop: the last weights of a
  // completed run, or -1.
  int64_t version = 0;
  int64_t samples = 0;                   // kTrain: samples of the whole batch
  float loss_scale = 1;                  // kTrain: a factor of the gradient
  std::vector<OrderPart> parts;          // kTrain: from left to right
  std::vector<uint32_t> chunks;          // kTrain: the chunks to push; all if empty
  bool taken_over = false;               // kTrain: the slices were assigned to another worker
  int64_t block_size = 0;                // kEvaluate
  Range blocks;                          // kEvaluate: this worker's blocks
  wire::EvaluationSet set = wire::TEST;  // kEvaluate
  bool average = false;                  // kEvaluate: use the moving average of W(version)
  bool predictions = false;              // kEvaluate: report label and prediction of each sample
  uint32_t images = 0;                   // kEvaluate: the number of samples of the set to send
  bool completed = false;                // kStop: the run reached its end
  std::string reason;                    // kStop

  // Whether it must be executed before earlier orders.
  bool urgent() const { return kind == Kind::kReset || taken_over; }
};

// A range of floats of the parameter buffer.
struct ChunkRange {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

struct Terms {
  StepPlan plan;
  std::vector<ChunkRange> chunks;
  std::vector<TreeNode> nodes;  // this worker's initial subtrees, from left to right
  int64_t first_step = 0;       // the step they begin with
  size_t buffers = 0;           // the number of gradient buffers
  WireType wire_type = wire::FP32;
  bool adds_in_gpus = false;  // the relay takes gradients from GPUs (Client::ShareGpuBuffer)

  size_t LargestChunk() const;
  // Whether W(version) exists in this job.
  bool IsVersion(int64_t version) const { return 0 <= version && version <= plan.total_steps; }
};

// Returns nothing if the message contradicts itself or the size of the parameter buffer.
std::optional<Terms> ReadWelcome(const wire::Welcome& welcome, size_t arena_floats);

// Reads the subtrees of an order. Returns nothing if they do not belong to this plan or need more
// than `buffers` buffers.
std::optional<std::vector<TreeNode>> ReadNodes(
    const google::protobuf::RepeatedPtrField<wire::Subtree>& subtrees, const StepPlan& plan,
    size_t buffers);

// Return nothing if the order does not fit these terms.
std::optional<Order> ReadTrain(const wire::Train& train, const Terms& terms);
std::optional<Order> ReadEvaluate(const wire::Evaluate& evaluate, const Terms& terms);

// The newest arrived version of each chunk and of its average.
class Arrivals {
 public:
  Arrivals() = default;  // expects nothing
  // The state before W(first), the first weights, has arrived. A resumed run may begin with an
  // evaluation of their average.
  Arrivals(size_t chunks, int64_t first)
      : first_(first), weights_(chunks, first - 1), average_(chunks, first - 1) {}

  // Whether weights of this version have not arrived and never will.
  bool BeginAfter(int64_t version) const { return version < first_; }

  // Whether this chunk, or a later version, has arrived. Later weights arrive only when the
  // evaluation of the average is over.
  bool Has(int64_t version, size_t chunk, bool average) const {
    if (BeginAfter(version) || chunk >= weights_.size()) return false;
    return average ? average_[chunk] >= version || weights_[chunk] > version
                   : weights_[chunk] >= version;
  }

  // Versions arrive in increasing order; unneeded ones may be skipped. An average arrives only for
  // an evaluation, after its weights. Chunks arrive in any order.
  bool IsNext(const wire::WeightsChunk& weights) const {
    const size_t chunk = weights.chunk();
    if (chunk >= weights_.size()) return false;
    if (!weights.average()) return weights.version() > weights_[chunk];
    return weights.version() == weights_[chunk] && weights.version() > average_[chunk];
  }
  void Mark(const wire::WeightsChunk& next) {
    (next.average() ? average_ : weights_)[next.chunk()] = next.version();
  }

 private:
  int64_t first_ = 0;
  std::vector<int64_t> weights_, average_;
};

// The hash decides whether a worker's layout matches; names, shapes and lines let the server report
// the difference.
void DescribeLayout(const VariableLayout& layout, wire::Hello& hello);

// Drops details that only help to report a difference, until the Hello fits into a message. Must be
// called last.
void TrimHello(wire::Hello& hello);

}  // namespace muster
