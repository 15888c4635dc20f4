// A plan for one batch size and mode: its ops, and the places of values, gradients and states in
// the workspace, which the tower owns and all programs of a mode share.
//
// Owned by the tower and used on its compute thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/graph/graph.h"
#include "worker/backend/backend.h"
#include "worker/nn/backward_plan.h"
#include "worker/nn/input_stage.h"
#include "worker/nn/memory_plan.h"
#include "worker/nn/plan.h"
#include "worker/nn/tower_input.h"

namespace muster {

class Program {
 public:
  // `backward` is used only in training. Both plans, `hooks` and the tower's `layouts` must outlive
  // the program. Allocates no large memory.
  Program(const Graph& graph, const Plan& plan, const BackwardPlan& backward,
          const HookLayers& hooks, Backend& backend, WeightLayouts& layouts, int64_t count,
          Mode mode, uint64_t seed);

  size_t workspace_bytes() const { return workspace_bytes_; }
  // The layer that needs the most memory for its output, its state for backward, and its scratch.
  struct LayerBytes {
    const Layer* layer = nullptr;
    size_t bytes = 0;
  };
  LayerBytes LargestLayer() const;

  // As in Tower. The workspace is device memory.
  void Forward(const DeviceInput& input, std::span<const float> weights, int64_t weights_version,
               const LayerHook& before_layer, std::byte* workspace);
  void Backward(float loss_scale, const DeviceInput& input, std::span<const float> weights,
                int64_t weights_version, std::span<float> gradients, const LayerHook& after_layer,
                std::byte* workspace);

 private:
  struct BoundOp {
    std::unique_ptr<Op> op;
    size_t state = 0;  // offset in the workspace
  };

  // Steps between two hooks, which the device may record.
  struct Segment {
    size_t begin, end;
    bool reads_epoch;                        // dropout, in forward
    std::unique_ptr<RepeatedWork> repeated;  // null: not recorded
  };

  OpOptions Options(const PlanStep& step, Mode mode, uint64_t seed) const;
  void MakeOps(Mode mode, uint64_t seed);
  void MakeSegments(Mode mode);
  bool HasHook(int layer) const;
  void PlaceAll(Mode mode);
  std::vector<Lifetime> ValueLifetimes() const;
  void ExtendToBackward(std::vector<Lifetime>& values) const;
  std::vector<Lifetime> GradientLifetimes() const;
  std::vector<Lifetime> StateLifetimes(Mode mode) const;
  std::vector<Lifetime> FlipLifetimes() const;

  // Times are numbered from 0: forward steps, the loss forward, the loss backward, backward steps.
  int LossTime() const { return static_cast<int>(plan_.steps.size()); }
  int BackwardTime(size_t step) const { return LossTime() + 2 + static_cast<int>(step); }

  // Returns the bytes of a tensor with `elements` values for each sample of the batch, of the
  // backend's activation_type.
  size_t ActivationBytes(int64_t elements) const;
  ElementType LogitsType() const;
  size_t LogitsBytes() const;
  LossArgs LossArguments(const DeviceInput& input, std::byte* workspace) const;
  const void* Value(int value, const DeviceInput& input, const std::byte* workspace) const;
  void* Gradient(int buffer, std::byte* workspace) const;
  static void Run(const Segment& segment, std::span<const uint64_t> key,
                  const std::function<void()>& work);
  // Runs all ops. They write the logits to `logits`.
  void RunForward(const DeviceInput& input, std::span<const float> weights, int64_t weights_version,
                  const LayerHook& before_layer, std::byte* workspace, std::byte* logits);
  void ForwardStep(size_t step, const DeviceInput& input, std::span<const float> weights,
                   int64_t weights_version, std::byte* workspace, std::byte* logits);
  void BringLogits(const void* logits, float* to);
  void BringRoundedLogits(const void* logits, std::span<float> to);
  void AddGradients(const BackwardStep& back, std::byte* workspace);
  void BackwardOne(const BackwardStep& back, float loss_scale, const DeviceInput& input,
                   std::span<const float> weights, int64_t weights_version,
                   std::span<float> gradients, std::byte* workspace);

  const Graph& graph_;
  const Plan& plan_;
  const BackwardPlan& backward_;
  const HookLayers& hooks_;
  Backend& backend_;
  WeightLayouts& layouts_;
  const int64_t count_;
  std::vector<BoundOp> ops_;  // one for each step of the plan
  std::unique_ptr<LossOp> loss_;
  std::vector<Segment> forward_segments_, backward_segments_;
  std::vector<int> unreached_;  // layers with variables that have no backward pass, last first
  // Offsets in the workspace, in bytes.
  std::vector<size_t> values_, gradients_;
  size_t loss_state_ = 0;
  size_t scratch_ = 0;
  size_t mirror_images_ = 0, mirror_logits_ = 0;  // with Plan::flip
  size_t workspace_bytes_ = 0;
  // Addresses passed to an op; members, so that a step allocates nothing.
  std::vector<const void*> inputs_;
  std::vector<void*> input_gradients_;
};

}  // namespace muster
