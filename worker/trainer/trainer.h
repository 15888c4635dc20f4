// One worker's part of the run: computes its slices of each step, evaluates its blocks, and times
// what it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
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
#include "worker/trainer/device_weights.h"

namespace muster {

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
  // reach its end.
  void Run();

 private:
  using Clock = std::chrono::steady_clock;

  void TrainStep(const Order& order);
  void Evaluate(const Order& order);

  // Gradient of the slices below `node`, added in tree order into the buffer of `level`. False if
  // they hold no samples. `last`: the rightmost path of the part's tree, on which each chunk is
  // added up and pushed while backward goes on; `pending` are the levels whose sum still misses
  // this subtree, innermost first.
  bool Accumulate(const TreeNode& node, size_t level, const std::vector<size_t>& pending,
                  bool last);
  bool ComputeSlice(int64_t slice, size_t level, const std::vector<size_t>& pending, bool last);
  void AddAndPush(size_t chunk, const std::vector<size_t>& pending);
  void CopyOutAndPush(size_t chunk);

  void AwaitLayer(int layer);
  void LayerDone(int layer, const std::vector<size_t>& pending);
  double StepLimit() const;

  // Books what of the time since `begin` was computing, and what pushing.
  void BookCompute(Clock::time_point begin);
  // Books the time since `begin` as waiting, and for what.
  void BookWait(Clock::time_point begin);

  const config::Config& config_;
  const Graph& graph_;
  const Datasets& data_;
  Backend& backend_;
  Client& client_;
  Tower tower_;
  Completions completions_;
  DeviceWeights weights_;
  DeviceGradients gradients_;
  const std::unique_ptr<Event> input_copied_, results_copied_;
  std::vector<std::vector<size_t>> reads_;     // layer → the chunks that hold its variables
  std::vector<std::vector<size_t>> finishes_;  // layer → the chunks that are done after it
  std::unique_ptr<BatchPipeline> pipeline_;

  // Of the step under way.
  Order order_;
  size_t part_ = 0;
  bool streamed_ = false;  // the part's chunks were pushed during backward
  wire::StepTimes times_;
  bool first_weights_seen_ = false;
  std::deque<LossSums> sums_;  // of each slice so far, or of a block
  std::vector<int32_t> predictions_;
  // In all hooks of one slice's passes: what is not compute.
  double waited_ms_ = 0, pushed_ms_ = 0;
};

}  // namespace muster
