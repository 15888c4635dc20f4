// A replica of the network on one device: forward, loss, backward.
//
// Forward and Backward queue their work on the backend and may return before it is done. Weights
// and gradients are the caller's, in the device's memory (device_view.h), in the arena order of the
// Graph; samples and results are at the host.
//
// Owner and thread: one compute thread owns a tower. The tower owns activations and everything
// that the backend makes. Plan makes all of it but the large buffers, Prepare those too; a step
// allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"
#include "worker/nn/stored_images.h"
#include "worker/nn/tower_input.h"

namespace muster {

// Bytes of a tower's large buffers: those that are there, and those that Allocate would add.
struct TowerMemory {
  // Values, gradients, states and scratch of the largest training batch, and on a device with
  // memory of its own the batch itself.
  size_t training = 0;
  size_t evaluation = 0;  // of the largest evaluation batch
  size_t layouts = 0;     // copies of weights as the backend's kernels want them
};

class Tower {
 public:
  // `seed` is the run's (dropout). `graph` and `backend` must outlive the tower. class_weights:
  // what the loss of a sample of each class is multiplied by in training; beyond them, and without
  // any, 1.
  Tower(const Graph& graph, Backend& backend, uint64_t seed, std::vector<float> class_weights = {});
  ~Tower();

  // Makes what batches of `count` samples need, but for the large buffers, which memory() counts
  // from now on. Not between Forward and Backward.
  void Plan(int64_t count, Mode mode);
  // Allocates the buffers for everything that was planned. Not between Forward and Backward.
  void Allocate();
  // Both. Forward and Backward accept prepared counts only, and 0: an empty batch has the loss 0
  // and gradients of 0.
  void Prepare(int64_t count, Mode mode);
  TowerMemory memory() const;

  // Batches of this mode are made of these images by the device, which then reads no more of an
  // input than its sample_ids and epoch. Null: they come from the host again. The images must
  // outlive the tower's use of them.
  void UseImages(Mode mode, StoredImages* images);
  // The batch of the next Forward of this mode, if its key is this one's: where the device makes
  // batches, it makes this one while it still computes on the one before. Its sample_ids must stay
  // until what is queued on Queue::kCopyIn is done. Others lose nothing but time.
  void Stage(const TowerInput& input, Mode mode);

  // Runs all layers on `input` with `weights` (graph.arena_floats() floats). Calls
  // before_layer(i) before the ops that read the variables of layer i are queued, for each layer
  // that has some, in execution order: when the hook returns, those weights are there for what is
  // queued on Queue::kCompute from then on.
  // `sums` and input.predictions are written by the time that what is then queued on
  // Queue::kCopyOut is done.
  // `weights_version` names the contents of `weights`: layouts derived from them are kept as long
  // as it stays the same.
  void Forward(const TowerInput& input, Mode mode, std::span<const float> weights,
               int64_t weights_version, const LayerHook& before_layer, LossSums& sums);

  // The gradient of loss_scale * (sum of the losses of the last training Forward) with respect to
  // every trained variable, and for a statistic the slice's own times count * loss_scale (with
  // loss_scale = 1 / N these add up over the slices to the batch's statistic; samples of weight
  // zero count in it like all others). Both are written (not added) to `gradients`
  // (graph.arena_floats() floats; the padding between variables is left alone). Calls
  // after_layer(i) when everything is queued on Queue::kCompute that writes gradients of layer i or
  // reads its weights, for each layer that has variables, from the last to the first.
  void Backward(float loss_scale, std::span<const float> weights, std::span<float> gradients,
                const LayerHook& after_layer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
