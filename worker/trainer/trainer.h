// A worker's compute loop: computes its slices of each step, evaluates its blocks, and measures
// times.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "worker/backend/backend.h"
#include "worker/client/client.h"
#include "worker/data/dataset.h"
#include "worker/data/pipeline.h"
#include "worker/follow/order_follower.h"
#include "worker/follow/tree_accumulator.h"
#include "worker/nn/completions.h"
#include "worker/nn/tower.h"
#include "worker/trainer/device_gradients.h"
#include "worker/trainer/device_images.h"
#include "worker/trainer/device_weights.h"
#include "worker/trainer/slice_guard.h"
#include "worker/trainer/step_report.h"

namespace muster {

// By layer, the chunks whose first layer it is: forward needs them from this layer on, and their
// gradients are complete after its backward.
using LayerChunks = std::vector<std::vector<size_t>>;

// Owned and used by the worker's main thread. It may run ahead of the device: work that needs the
// device's results (reporting a loss, pushing a gradient) is done by the same thread when the
// device has finished. The references must outlive the trainer.
class Trainer final : private OrderWork, private SliceSums {
 public:
  Trainer(const config::Config& config, const Graph& graph, const Datasets& data, Backend& backend,
          Client& client);
  ~Trainer() override;
  Trainer(const Trainer&) = delete;

  // Follows the server's orders until Stop. Throws Error(kPeerFailed) if the run did not complete,
  // and Error(kOk) if it completed while this worker still waited for weights.
  void Run();

 private:
  using Clock = std::chrono::steady_clock;

  void BringImages();

  // train_step.cc
  void Train(Order order) override;
  void TakeOver(Order order) override;
  // Computes the gradient of the subtree of `part` and pushes it.
  void ComputePart(const OrderPart& part);
  // The chunks of a part's last slice are summed and pushed while backward continues.
  bool ComputeSlice(int64_t slice, const SumPlace& place) override;
  void AddUp(const std::vector<size_t>& pending) override;
  LossSums& Forward(const PreparedBatch& batch);
  static TowerInput InputOf(const PreparedBatch& batch);
  // Lets the device copy or prepare the next batch while it computes on this one.
  void StageNext(BatchPipeline& batches, Mode mode);
  void AddAndPush(size_t chunk, const SumPlace& place);
  void CopyOutAndPush(size_t chunk);
  void LayerDone(int layer, const SumPlace& place);
  // How long to wait for input and device within a step.
  double StepLimit() const;
  std::unique_ptr<BatchPipeline> MakeBatches(int64_t first_step, int64_t end_step,
                                             const std::vector<TreeNode>& nodes) const;

  // evaluate.cc
  void Evaluate(const Order& order) override;
  const Dataset* SetOf(const Order& order) const;
  // Returns false if the remaining blocks are no longer wanted.
  bool EvaluateBlock(const PreparedBatch& batch, BatchPipeline& blocks);
  bool ReportBlock(const PreparedBatch& batch, const LossSums& sums);

  void DropAll() override;
  void AwaitLayer(int layer);

  const config::Config& config_;
  const Graph& graph_;
  const Datasets& data_;
  Backend& backend_;
  Client& client_;
  OrderFollower follower_;
  const LayerChunks layer_chunks_;
  Tower tower_;
  std::unique_ptr<DeviceImages> images_;
  Completions completions_;
  DeviceWeights weights_;
  DeviceGradients gradients_;
  // Gradients stay in the GPU, where the relay of this host adds them.
  const bool stays_in_gpu_;
  SliceGuard guard_;
  const std::unique_ptr<Event> input_copied_, results_copied_;
  const std::shared_ptr<EpochOrders> orders_;  // shared by all pipelines
  // The subtrees that this worker computes in each step, starting with `next_step`.
  struct Share {
    std::vector<TreeNode> nodes;
    int64_t next_step = 0;
    std::unique_ptr<BatchPipeline> batches;
  };
  Share share_;
  std::optional<double> longest_step_s_;  // none before the end of the first step

  // The current work.
  struct Work {
    Order order;
    BatchPipeline* batches = nullptr;
    const OrderPart* part = nullptr;   // in `order`
    std::vector<bool> chunks;          // to be pushed; empty: all
    int64_t last_slice = 0;            // the slice whose chunks are summed during backward
    bool streamed = false;             // the part's chunks were pushed during backward
    std::deque<LossSums> sums;         // of each slice so far, or of a block
    std::vector<int32_t> predictions;  // of a block
  };
  Work work_;
  StepReport report_;
};

}  // namespace muster
