// One worker's part of the run: computes its slices of each step, evaluates its blocks, and times
// what it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "worker/backend/backend.h"
#include "worker/client/client.h"
#include "worker/data/dataset.h"
#include "worker/data/pipeline.h"
#include "worker/nn/completions.h"
#include "worker/nn/tower.h"
#include "worker/trainer/device_gradients.h"
#include "worker/trainer/device_images.h"
#include "worker/trainer/device_weights.h"
#include "worker/trainer/slice_guard.h"
#include "worker/trainer/step_report.h"

namespace muster {

// Thrown out of a forward pass by a wait for weights: the server wants something else first.
struct Superseded {};
// The server has reset this worker.
struct WasReset {};

// The chunks of each layer.
struct LayerChunks {
  std::vector<std::vector<size_t>> reads;     // that hold its variables
  std::vector<std::vector<size_t>> finishes;  // that are done after its backward pass
};

// Owner and thread: the worker's main thread. It may run ahead of the device: what has to wait for
// the device (to report a loss, to push a gradient) is done by the same thread when the device has
// come so far. The references must outlive the trainer.
class Trainer {
 public:
  Trainer(const config::Config& config, const Graph& graph, const Datasets& data, Backend& backend,
          Client& client);
  ~Trainer();
  Trainer(const Trainer&) = delete;

  // Follows the server's orders until it says Stop. Throws Error(kPeerFailed) if the run did not
  // reach its end; kOk if it did, and this worker still waited for weights.
  void Run();

 private:
  using Clock = std::chrono::steady_clock;

  void BringImages();

  // train_step.cc
  void TrainStep(Order order);
  // Work of somebody else's, in the middle of what is under way, which then begins its forward pass
  // again.
  void TakeOver(Order order);
  // The gradient of the subtree of `part`, from first sample to last push.
  void ComputePart(const OrderPart& part);
  // Gradient of the slices below `node`, added in tree order into the buffer of `level`. False if
  // they hold no samples. `last`: the rightmost path of the part's tree, on which each chunk is
  // added up and pushed while backward goes on; `pending` are the levels whose sum still misses
  // this subtree, innermost first.
  bool Accumulate(const TreeNode& node, size_t level, const std::vector<size_t>& pending,
                  bool last);
  bool ComputeSlice(int64_t slice, size_t level, const std::vector<size_t>& pending, bool last);
  LossSums& Forward(const PreparedBatch& batch);
  static TowerInput InputOf(const PreparedBatch& batch);
  // The device makes the next batch while it computes on this one, if it makes batches at all.
  void StageNext(BatchPipeline& batches, Mode mode);
  void AwaitAll();
  void AddAndPush(size_t chunk, const std::vector<size_t>& pending);
  void CopyOutAndPush(size_t chunk);
  void LayerDone(int layer, const std::vector<size_t>& pending);
  void GiveBackBuffers();
  double StepLimit() const;
  std::unique_ptr<BatchPipeline> MakeBatches(int64_t first_step, int64_t end_step,
                                             const std::vector<TreeNode>& nodes) const;

  // evaluate.cc
  void Evaluate(const Order& order);
  const Dataset* SetOf(const Order& order) const;
  void AwaitAverage();
  // False: nobody wants the others.
  bool EvaluateBlock(const PreparedBatch& batch, BatchPipeline& blocks);
  bool ReportBlock(const PreparedBatch& batch, const LossSums& sums);

  // What the server wants before what is under way.
  void DoUrgent();
  // The worker was reset: nothing of what is under way is wanted.
  void BeginAnew();
  // Throws Superseded if the server wants something else first.
  void AwaitChunk(size_t chunk);
  void AwaitLayer(int layer);

  const config::Config& config_;
  const Graph& graph_;
  const Datasets& data_;
  Backend& backend_;
  Client& client_;
  Tower tower_;
  std::unique_ptr<DeviceImages> images_;
  Completions completions_;
  DeviceWeights weights_;
  DeviceGradients gradients_;
  SliceGuard guard_;
  const std::unique_ptr<Event> input_copied_, results_copied_;
  const LayerChunks layer_chunks_;
  const std::shared_ptr<EpochOrders> orders_;  // which all pipelines use
  // The subtrees that this worker computes in each step, from `next_step` on.
  struct Share {
    std::vector<TreeNode> nodes;
    int64_t next_step = 0;
    std::unique_ptr<BatchPipeline> batches;
  };
  Share share_;
  bool first_step_done_ = false;
  std::map<size_t, int64_t> buffer_used_;  // its number → the last step

  // What is under way.
  struct Work {
    Order order;
    BatchPipeline* batches = nullptr;
    const OrderPart* part = nullptr;   // of the order
    std::vector<bool> chunks;          // to be pushed; empty: all
    int64_t last_slice = 0;            // the one whose chunks are added up during backward
    bool streamed = false;             // the part's chunks were pushed during backward
    std::deque<LossSums> sums;         // of each slice so far, or of a block
    std::vector<int32_t> predictions;  // of a block
  };
  Work work_;
  StepReport report_;
};

}  // namespace muster
