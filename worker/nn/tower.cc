#include "worker/nn/tower.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/error.h"
#include "worker/nn/backward_plan.h"
#include "worker/nn/plan.h"
#include "worker/nn/program.h"

namespace muster {

class Tower::Impl {
 public:
  Impl(const Graph& graph, Backend& backend, uint64_t seed)
      : graph_(graph), backend_(backend), seed_(seed), layouts_(backend.MakeWeightLayouts()) {
    for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
      ModeState& state = modes_[mode];
      state.plan = MakePlan(graph, mode);
      if (mode == Mode::kTraining) state.backward = MakeBackwardPlan(graph, state.plan);
    }
  }

  void Plan(int64_t count, Mode mode) {
    MUSTER_CHECK(count >= 0);
    ModeState& state = modes_.at(mode);
    if (count == 0 || state.programs.contains(count)) return;
    backend_.Enter();
    auto program = std::make_unique<Program>(graph_, state.plan, state.backward, backend_,
                                             *layouts_, count, mode, seed_);
    state.planned_floats = std::max(state.planned_floats, program->workspace_floats());
    state.programs.emplace(count, std::move(program));
  }

  void Allocate() {
    backend_.Enter();
    for (auto& [mode, state] : modes_) {
      if (state.planned_floats <= state.workspace_floats) continue;
      state.workspace_floats = 0;
      state.workspace.reset();
      state.workspace = backend_.Allocate(state.planned_floats);
      state.workspace_floats = state.planned_floats;
      if (mode == Mode::kTraining) pending_ = {};  // its values are gone
    }
    layouts_->Allocate();
  }

  TowerMemory memory() const {
    return {.training = modes_.at(Mode::kTraining).planned_floats * sizeof(float),
            .evaluation = modes_.at(Mode::kInference).planned_floats * sizeof(float),
            .layouts = layouts_->bytes()};
  }

  LossSums Forward(const TowerInput& input, Mode mode, std::span<const float> weights,
                   int64_t weights_version, const LayerHook& before_layer) {
    MUSTER_CHECK(weights.size() == graph_.arena_floats());
    Program* program = nullptr;
    if (input.count > 0) {
      const auto found = modes_.at(mode).programs.find(input.count);
      MUSTER_CHECK(found != modes_.at(mode).programs.end());
      program = found->second.get();
    }
    if (mode == Mode::kTraining) {
      pending_ = {.valid = true, .program = program, .input = input, .version = weights_version};
    }
    if (program == nullptr) {
      for (size_t i = 0; i < graph_.layers().size(); ++i) CallHook(before_layer, i);
      return {};
    }
    backend_.Enter();
    return program->Forward(input, weights, weights_version, before_layer,
                            modes_.at(mode).workspace->data());
  }

  void Backward(float loss_scale, std::span<const float> weights, std::span<float> gradients,
                const LayerHook& after_layer) {
    MUSTER_CHECK(pending_.valid);
    MUSTER_CHECK(weights.size() == graph_.arena_floats());
    MUSTER_CHECK(gradients.size() == graph_.arena_floats());
    const Pending pending = std::exchange(pending_, {});
    if (pending.program == nullptr) {
      for (const Variable& variable : graph_.variables()) {
        std::fill_n(gradients.begin() + variable.offset, variable.count, 0.0f);
      }
      for (size_t i = graph_.layers().size(); i-- > 0;) CallHook(after_layer, i);
      return;
    }
    backend_.Enter();
    pending.program->Backward(loss_scale, pending.input, weights, pending.version, gradients,
                              after_layer, modes_.at(Mode::kTraining).workspace->data());
  }

 private:
  struct ModeState {
    muster::Plan plan;
    BackwardPlan backward;                                 // training
    std::map<int64_t, std::unique_ptr<Program>> programs;  // by count
    size_t planned_floats = 0;                             // for the largest of them
    std::unique_ptr<DeviceBuffer> workspace;
    size_t workspace_floats = 0;  // of it: fewer, until Allocate
  };
  // The training Forward whose Backward has not come yet. No program: an empty batch.
  struct Pending {
    bool valid = false;
    Program* program = nullptr;
    TowerInput input;
    int64_t version = 0;
  };

  void CallHook(const LayerHook& hook, size_t layer) const {
    const Layer& l = graph_.layers()[layer];
    if (hook && l.has_variables()) hook(static_cast<int>(layer));
  }

  const Graph& graph_;
  Backend& backend_;
  const uint64_t seed_;
  const std::unique_ptr<WeightLayouts> layouts_;  // of all programs
  std::map<Mode, ModeState> modes_;
  Pending pending_;
};

Tower::Tower(const Graph& graph, Backend& backend, uint64_t seed)
    : impl_(std::make_unique<Impl>(graph, backend, seed)) {}
Tower::~Tower() = default;

void Tower::Plan(int64_t count, Mode mode) { impl_->Plan(count, mode); }

void Tower::Allocate() { impl_->Allocate(); }

void Tower::Prepare(int64_t count, Mode mode) {
  impl_->Plan(count, mode);
  impl_->Allocate();
}

TowerMemory Tower::memory() const { return impl_->memory(); }

LossSums Tower::Forward(const TowerInput& input, Mode mode, std::span<const float> weights,
                        int64_t weights_version, const LayerHook& before_layer) {
  return impl_->Forward(input, mode, weights, weights_version, before_layer);
}

void Tower::Backward(float loss_scale, std::span<const float> weights, std::span<float> gradients,
                     const LayerHook& after_layer) {
  impl_->Backward(loss_scale, weights, gradients, after_layer);
}

}  // namespace muster
