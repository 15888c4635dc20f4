// What a worker says of its variables when it joins, and what the server says: the job and this
// worker's share of it, what it wants next, and which weights have come.
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

// One subtree of an order, whose gradient lies in this gradient buffer.
struct OrderPart {
  uint64_t order = 0;  // its number: losses and gradients are sent under it
  TreeNode node;
  size_t buffer = 0;
};

struct Order {
  // kReset: all that this worker has not sent yet is not wanted any more; it drops its work and
  // says Ready again.
  enum class Kind { kTrain, kEvaluate, kReset, kStop };
  Kind kind;
  int64_t version = 0;                   // use W(version); the step to train, too
  int64_t samples = 0;                   // kTrain: of the whole batch
  std::vector<OrderPart> parts;          // kTrain: from left to right
  std::vector<uint32_t> chunks;          // kTrain: push these only; empty: all
  bool taken_over = false;               // kTrain: slices that somebody else was to compute
  int64_t block_size = 0;                // kEvaluate
  Range blocks;                          // kEvaluate: of this worker
  wire::EvaluationSet set = wire::TEST;  // kEvaluate
  bool average = false;                  // kEvaluate: on the moving average of W(version)
  bool predictions = false;              // kEvaluate: report label and prediction of each sample
  uint32_t images = 0;                   // kEvaluate: send so many samples with block 0
  bool completed = false;                // kStop: the run reached its end
  std::string reason;                    // kStop

  // What must be done before what was ordered earlier.
  bool urgent() const { return kind == Kind::kReset || taken_over; }
};

// A range of floats of the arena.
struct ChunkRange {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

struct Terms {
  StepPlan plan;
  std::vector<ChunkRange> chunks;
  std::vector<TreeNode> nodes;  // what this worker begins with, from left to right
  int64_t first_step = 0;       // and with which step
  size_t buffers = 0;           // for gradients
  WireType wire_type = wire::FP32;

  size_t LargestChunk() const;
  // Whether there are such weights in this job.
  bool IsVersion(int64_t version) const { return 0 <= version && version <= plan.total_steps; }
};

// Empty: it does not fit an arena of so many floats, or contradicts itself.
std::optional<Terms> ReadWelcome(const wire::Welcome& welcome, size_t arena_floats);

// The subtrees of an order. Empty: they are none of this plan, or more than these buffers.
std::optional<std::vector<TreeNode>> ReadNodes(
    const google::protobuf::RepeatedPtrField<wire::Subtree>& subtrees, const StepPlan& plan,
    size_t buffers);

// Empty: it does not fit these terms.
std::optional<Order> ReadTrain(const wire::Train& train, const Terms& terms);
std::optional<Order> ReadEvaluate(const wire::Evaluate& evaluate, const Terms& terms);

// The newest version of each chunk, and of its average.
class Arrivals {
 public:
  Arrivals() = default;  // nothing is to come
  // Before the first ones, W(first), came. A run that goes on may begin with an evaluation of their
  // average.
  Arrivals(size_t chunks, int64_t first)
      : first_(first), weights_(chunks, first - 1), average_(chunks, first - 1) {}

  // Weights of this version are not here, and will never come.
  bool BeginAfter(int64_t version) const { return version < first_; }

  // The chunk of these weights, or of their average, or of later ones. Later weights come when the
  // evaluation of the average is over.
  bool Has(int64_t version, size_t chunk, bool average) const {
    if (BeginAfter(version) || chunk >= weights_.size()) return false;
    return average ? average_[chunk] >= version || weights_[chunk] > version
                   : weights_[chunk] >= version;
  }

  // Weights come in the order of their versions; those that nobody needs any more may be left out.
  // An average comes only where an evaluation wants it, and after its weights. Chunks are in any
  // order, and any number.
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

// The hash decides whether a worker fits; names, shapes and lines let the server say what differs.
void DescribeLayout(const VariableLayout& layout, wire::Hello& hello);

// Takes away what only names a difference, until the Hello fits into a message. Last.
void TrimHello(wire::Hello& hello);

}  // namespace muster
