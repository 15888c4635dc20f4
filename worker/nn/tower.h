// A replica of the network on one device: forward, loss, backward.
//
// Forward and Backward queue their work on the backend and may return before it is done. Weights
// and gradients belong to the caller, in device memory (device_view.h) with the Graph's layout;
// samples and results are on the host.
//
// Threads: one compute thread owns a tower. The tower owns activations and everything that the
// backend makes. Plan makes everything except the large buffers, which Allocate makes; a step
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

// Bytes of a tower's large buffers, whether allocated or only planned.
struct TowerMemory {
  // Values, gradients, states and scratch of the largest training batch; on a device with separate
  // memory also the batch itself.
  size_t training = 0;
  size_t evaluation = 0;  // the same for the largest evaluation batch
  size_t layouts = 0;     // copies of weights in the layouts of the backend's kernels
};

class Tower {
 public:
  // `seed` is the run's seed, for dropout. `graph` and `backend` must outlive the tower.
  // class_weights holds the loss weight of each class in training; missing weights are 1. With
  // `flip`, inference takes the mean of the logits of each image and of its mirror image. A device
  // may record the work between two hooks and repeat it, so fewer `hooks` cost the host less.
  Tower(const Graph& graph, Backend& backend, uint64_t seed, std::vector<float> class_weights = {},
        bool flip = false, HookLayers hooks = {});
  ~Tower();

  // Makes everything for batches of `count` samples except the large buffers, which memory()
  // includes from now on. Must not be called between Forward and Backward.
  void Plan(int64_t count, Mode mode);
  // Allocates the buffers for everything that was planned. Must not be called between Forward and
  // Backward.
  void Allocate();
  // Calls Plan and Allocate. Forward and Backward accept only prepared counts and 0: an empty batch
  // has the loss 0 and gradients of 0.
  void Prepare(int64_t count, Mode mode);
  TowerMemory memory() const;

  // Makes the device prepare batches of this mode from these images; it then reads only sample_ids
  // and epoch of an input. If `images` is null, batches are copied from the host. The images must
  // outlive this use.
  void UseImages(Mode mode, StoredImages* images);
  // Announces the next batch of this mode. If the device makes batches, it makes this one while it
  // still computes on the previous one. The next Forward uses it if its key is the same; otherwise
  // only time is lost. Its sample_ids must stay valid until the work queued on Queue::kCopyIn is
  // done.
  void Stage(const TowerInput& input, Mode mode);

  // Runs all layers on `input` with `weights` (graph.arena_floats() floats). Calls before_layer(i)
  // once for each layer of `hooks`, in execution order, before its ops and those of the next layers
  // without a hook are queued. When the hook returns, the weights must be available to work that is
  // queued on Queue::kCompute from then on. `sums` and input.predictions have been written when the
  // work that Forward queues on Queue::kCopyOut is done. `weights_version` identifies the contents
  // of `weights`: layouts derived from them are reused as long as the version stays the same.
  void Forward(const TowerInput& input, Mode mode, std::span<const float> weights,
               int64_t weights_version, const LayerHook& before_layer, LossSums& sums);

  // Computes the gradient of loss_scale * (sum of the losses of the last training Forward) with
  // respect to every trained variable. For a statistic, computes the slice's own value times count
  // * loss_scale (with loss_scale = 1 / N these add up to the batch's statistic; samples of weight
  // zero count like all others). Both are written (not added) to `gradients` (graph.arena_floats()
  // floats; the padding between variables stays unchanged). Calls after_layer(i) for each layer
  // of `hooks`, from last to first, when all work that writes its gradients or reads its
  // weights is queued on Queue::kCompute.
  void Backward(float loss_scale, std::span<const float> weights, std::span<float> gradients,
                const LayerHook& after_layer);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster
