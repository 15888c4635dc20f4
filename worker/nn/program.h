// A plan made concrete for one batch size and mode: its ops, and where in the workspace each value,
// gradient and state lies. The workspace is the tower's, shared by all programs of a mode.
//
// Owner and thread: the tower, its compute thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/graph.h"
#include "worker/backend/backend.h"
#include "worker/nn/plan.h"
#include "worker/nn/tower.h"

namespace muster {

class Program {
 public:
  Program(const Graph& graph, const Plan& plan, Backend& backend, int64_t count, Mode mode,
          uint64_t seed);

  size_t workspace_floats() const { return workspace_floats_; }

  // As in Tower.
  LossSums Forward(const TowerInput& input, std::span<const float> weights,
                   int64_t weights_version, const Tower::LayerHook& before_layer,
                   float* workspace);
  void Backward(float loss_scale, const TowerInput& input, std::span<const float> weights,
                int64_t weights_version, std::span<float> gradients,
                const Tower::LayerHook& after_layer, float* workspace);

 private:
  struct BoundOp {
    PlanStep step;
    std::unique_ptr<Op> op;
    size_t state = 0;  // offset in the workspace
  };

  void PlaceValues(const Plan& plan, Mode mode);
  size_t Reserve(size_t floats);
  const float* Input(const PlanStep& step, const TowerInput& input, float* workspace) const;

  const Graph& graph_;
  const int64_t count_;
  std::vector<BoundOp> ops_;
  std::unique_ptr<LossOp> loss_;
  PlanStep loss_step_;
  // Offsets in the workspace, in floats.
  std::vector<size_t> values_;
  size_t gradients_[2] = {0, 0};  // of an op's output, of its input, and so on in turn
  size_t loss_state_ = 0;
  size_t scratch_ = 0;
  size_t workspace_floats_ = 0;
};

}  // namespace muster
