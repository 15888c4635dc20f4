#include "worker/nn/tower.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "worker/nn/backward_plan.h"
#include "worker/nn/input_stage.h"
#include "worker/nn/name_failure.h"
#include "worker/nn/plan.h"
#include "worker/nn/program.h"

namespace muster {

class Tower::Impl {
 public:
  Impl(const Graph& graph, Backend& backend, uint64_t seed, std::vector<float> class_weights,
       bool flip, HookLayers hooks)
      : graph_(graph),
        backend_(backend),
        seed_(seed),
        hooks_(std::move(hooks)),
        layouts_(backend.MakeWeightLayouts()),
        class_weights_(std::move(class_weights)) {
    if (!class_weights_.empty()) BringClassWeights();
    for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
      ModeState& state =
          modes_.try_emplace(mode, backend, graph.input_shape().elements()).first->second;
      state.plan = MakePlan(graph, mode);
      state.plan.flip = flip && mode == Mode::kInference;
      if (mode == Mode::kTraining) state.backward = MakeBackwardPlan(graph, state.plan);
    }
  }

  ~Impl() { backend_.Drain(); }

  void Plan(int64_t count, Mode mode) {
    MUSTER_CHECK(count >= 0);
    ModeState& state = modes_.at(mode);
    if (count == 0 || state.programs.contains(count)) return;
    backend_.Enter();
    auto program = std::make_unique<Program>(graph_, state.plan, state.backward, hooks_, backend_,
                                             *layouts_, count, mode, seed_);
    state.planned_bytes = std::max(state.planned_bytes, program->workspace_bytes());
    state.planned_count = std::max(state.planned_count, count);
    state.programs.emplace(count, std::move(program));
  }

  void Allocate() {
    backend_.Enter();
    backend_.Drain();  // queued work may still use the former buffers
    for (auto& [mode, state] : modes_) {
      try {
        AllocateMode(mode, state);
      } catch (const Error& error) {
        throw Error(error.code(), "{}: {}{}", Describe(mode, state), error.what(),
                    WhatFits(mode, state));
      }
    }
    NameFailure("weights in kernel layouts", [&] { layouts_->Allocate(); });
  }

  void UseImages(Mode mode, StoredImages* images) { modes_.at(mode).input.Use(images); }
  void Stage(const TowerInput& input, Mode mode) {
    backend_.Enter();
    modes_.at(mode).input.Stage(input);
  }

  TowerMemory memory() const {
    return {.training = modes_.at(Mode::kTraining).bytes(),
            .evaluation = modes_.at(Mode::kInference).bytes(),
            .layouts = layouts_->bytes()};
  }

  void Forward(const TowerInput& input, Mode mode, std::span<const float> weights,
               int64_t weights_version, const LayerHook& before_layer, LossSums& sums) {
    MUSTER_CHECK(weights.size() == graph_.arena_floats());
    ModeState& state = modes_.at(mode);
    Pending pass{.valid = true, .version = weights_version};
    if (input.count == 0) {
      for (size_t i = 0; i < graph_.layers().size(); ++i) CallHook(before_layer, i);
      sums = {};
    } else {
      const auto found = state.programs.find(input.count);
      MUSTER_CHECK(found != state.programs.end());
      backend_.Enter();
      pass.program = found->second.get();
      pass.input = state.input.Bring(input, sums);
      pass.input.share = input.share;
      if (mode == Mode::kTraining) pass.input.class_weights = class_weights_there_;
      pass.program->Forward(pass.input, weights, weights_version, before_layer,
                            state.workspace_data());
      state.input.BringBack(input, sums);
      state.input.Release();
    }
    if (mode == Mode::kTraining) pending_ = pass;
  }

  void Backward(float loss_scale, std::span<const float> weights, std::span<float> gradients,
                const LayerHook& after_layer) {
    MUSTER_CHECK(pending_.valid);
    MUSTER_CHECK(weights.size() == graph_.arena_floats());
    MUSTER_CHECK(gradients.size() == graph_.arena_floats());
    const Pending pending = std::exchange(pending_, {});
    backend_.Enter();
    if (pending.program == nullptr) {
      for (const Variable& variable : graph_.variables()) {
        backend_.Zero(gradients.data() + variable.offset, variable.count * sizeof(float));
      }
      for (size_t i = graph_.layers().size(); i-- > 0;) CallHook(after_layer, i);
      return;
    }
    ModeState& state = modes_.at(Mode::kTraining);
    pending.program->Backward(loss_scale, pending.input, weights, pending.version, gradients,
                              after_layer, state.workspace_data());
    state.input.Release();
  }

 private:
  struct ModeState {
    ModeState(Backend& backend, int64_t image) : input(backend, image) {}
    size_t bytes() const { return planned_bytes + input.BytesFor(planned_count); }
    std::byte* workspace_data() const { return static_cast<std::byte*>(workspace->data()); }

    muster::Plan plan;
    BackwardPlan backward;                                 // for training
    std::map<int64_t, std::unique_ptr<Program>> programs;  // by batch size
    InputStage input;
    // The largest planned batch and workspace, and the allocated ones, which may be smaller until
    // Allocate is called.
    int64_t planned_count = 0, count = 0;
    size_t planned_bytes = 0, workspace_bytes = 0;
    std::unique_ptr<DeviceBuffer> workspace;
  };
  // The training Forward that still awaits its Backward. `program` is null for an empty batch.
  struct Pending {
    bool valid = false;
    Program* program = nullptr;
    DeviceInput input;
    int64_t version = 0;
  };

  void BringClassWeights() {
    class_weights_.resize(static_cast<size_t>(graph_.classes()), 1.0f);
    class_weights_there_ = class_weights_.data();
    if (backend_.shares_host_memory()) return;
    backend_.Enter();
    const size_t bytes = class_weights_.size() * sizeof(float);
    class_weights_memory_ = backend_.Allocate(bytes);
    backend_.CopyIn(class_weights_memory_->data(), class_weights_.data(), bytes);
    const std::unique_ptr<Event> copied = backend_.MakeEvent();
    backend_.Record(Queue::kCopyIn, *copied);
    backend_.Await(Queue::kCompute, *copied);
    class_weights_there_ = static_cast<const float*>(class_weights_memory_->data());
  }

  void AllocateMode(Mode mode, ModeState& state) {
    if (state.planned_count > state.count) state.input.Allocate(state.planned_count);
    state.count = state.planned_count;
    if (state.planned_bytes <= state.workspace_bytes) return;
    state.workspace_bytes = 0;
    state.workspace.reset();
    state.workspace = backend_.Allocate(state.planned_bytes);
    state.workspace_bytes = state.planned_bytes;
    if (mode == Mode::kTraining) pending_ = {};  // its values are gone
  }

  static const char* NameOf(Mode mode) {
    return mode == Mode::kTraining ? "a slice" : "an evaluation batch";
  }

  std::string Describe(Mode mode, const ModeState& state) const {
    const Program::LayerBytes most = state.programs.at(state.planned_count)->LargestLayer();
    return fmt::format("activations of {} of {} samples ({:.1f} MB, {:.1f} MB of it in layer {})",
                       NameOf(mode), state.planned_count, static_cast<double>(state.bytes()) * 1e-6,
                       static_cast<double>(most.bytes) * 1e-6, most.layer->name);
  }

  // Returns a text such as "; a slice of up to 12 samples would fit". Frees this mode's buffers and
  // plans smaller batches for the free memory. The tower must not be used afterwards.
  std::string WhatFits(Mode mode, ModeState& state) {
    state.workspace.reset();
    state.input.Free();
    // The memory that the rest of the tower still has to allocate.
    size_t rest = layouts_->bytes();
    for (const auto& [other, others] : modes_) {
      if (other != mode && others.workspace == nullptr) rest += others.bytes();
    }
    const size_t room = backend_.memory_use().available;
    int64_t fits = 0;
    for (int64_t too_many = state.planned_count; too_many - fits > 1;) {
      const int64_t count = std::midpoint(fits, too_many);
      const Program program(graph_, state.plan, state.backward, hooks_, backend_, *layouts_, count,
                            mode, seed_);
      const size_t needed = program.workspace_bytes() + state.input.BytesFor(count);
      (needed + rest <= room ? fits : too_many) = count;
    }
    if (fits == 0) return "; not even one sample would fit";
    return fmt::format("; {} of up to {} samples would fit{}", NameOf(mode), fits,
                       mode == Mode::kTraining ? " (run.slices)" : " (evaluation.batch)");
  }

  void CallHook(const LayerHook& hook, size_t layer) const {
    if (!hook || !graph_.layers()[layer].has_variables()) return;
    if (hooks_.empty() || hooks_[layer]) hook(static_cast<int>(layer));
  }

  const Graph& graph_;
  Backend& backend_;
  const uint64_t seed_;
  const HookLayers hooks_;
  const std::unique_ptr<WeightLayouts> layouts_;  // for all programs
  std::vector<float> class_weights_;
  std::unique_ptr<DeviceBuffer> class_weights_memory_;
  const float* class_weights_there_ = nullptr;  // in device memory; null: all are 1
  std::map<Mode, ModeState> modes_;
  Pending pending_;
};

Tower::Tower(const Graph& graph, Backend& backend, uint64_t seed, std::vector<float> class_weights,
             bool flip, HookLayers hooks)
    : impl_(std::make_unique<Impl>(graph, backend, seed, std::move(class_weights), flip,
                                   std::move(hooks))) {}
Tower::~Tower() = default;

void Tower::Plan(int64_t count, Mode mode) { impl_->Plan(count, mode); }

void Tower::Allocate() { impl_->Allocate(); }

void Tower::Prepare(int64_t count, Mode mode) {
  impl_->Plan(count, mode);
  impl_->Allocate();
}

void Tower::UseImages(Mode mode, StoredImages* images) { impl_->UseImages(mode, images); }
void Tower::Stage(const TowerInput& input, Mode mode) { impl_->Stage(input, mode); }

TowerMemory Tower::memory() const { return impl_->memory(); }

void Tower::Forward(const TowerInput& input, Mode mode, std::span<const float> weights,
                    int64_t weights_version, const LayerHook& before_layer, LossSums& sums) {
  impl_->Forward(input, mode, weights, weights_version, before_layer, sums);
}

void Tower::Backward(float loss_scale, std::span<const float> weights, std::span<float> gradients,
                     const LayerHook& after_layer) {
  impl_->Backward(loss_scale, weights, gradients, after_layer);
}

}  // namespace muster
