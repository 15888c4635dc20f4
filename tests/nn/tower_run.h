// Trains a tower without a server, for tests: samples, weights and steps.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/memory.h"
#include "common/graph/graph.h"
#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"
#include "worker/nn/tower.h"

namespace muster {

inline constexpr uint64_t kSeed = 11;

// `count` samples of the network's data set, starting with sample `first`.
struct SampleBatch {
  SampleBatch(const Graph& graph, int64_t first, int64_t count)
      : images(count * graph.input_shape().elements()) {
    const int64_t elements = graph.input_shape().elements();
    for (int64_t n = 0; n < count; ++n) {
      const auto pixels = RandomFloats(elements, 1000 + static_cast<uint32_t>(first + n));
      std::copy(pixels.begin(), pixels.end(), images.floats().begin() + n * elements);
      labels.push_back(static_cast<int32_t>((first + n) * 5 % graph.classes()));
      ids.push_back(first + n);
    }
  }
  TowerInput Input() const {
    return {.count = std::ssize(ids),
            .images = images.floats().data(),
            .labels = labels.data(),
            .sample_ids = ids.data(),
            .epoch = 3};
  }
  Arena images;
  std::vector<int32_t> labels;
  std::vector<int64_t> ids;
};

inline Arena RandomWeights(const Graph& graph) {
  Arena weights(graph.arena_floats());
  for (const Variable& v : graph.variables()) {
    const auto values = RandomFloats(v.count, static_cast<uint32_t>(v.offset) + 7);
    // Scales are around 1, and variances positive.
    const bool around_one =
        v.kind == Variable::Kind::kScale || v.name.ends_with("running_variance");
    const float scale = around_one ? 0.5f : std::sqrt(3.0f / static_cast<float>(v.fan_in));
    for (size_t i = 0; i < v.count; ++i) {
      weights.floats()[v.offset + i] = scale * values[i] + (around_one ? 1.0f : 0.0f);
    }
  }
  return weights;
}

// For a tower on the host, where everything is done when Forward returns.
inline LossSums ForwardOf(Tower& tower, const TowerInput& input, Mode mode, const Arena& weights,
                          int64_t version, const LayerHook& before_layer = nullptr) {
  LossSums sums;
  tower.Forward(input, mode, weights.floats(), version, before_layer, sums);
  return sums;
}

// Runs forward and backward passes, and counts the versions of the weights.
class TowerRun {
 public:
  explicit TowerRun(const Graph& graph, int threads = 1, std::vector<float> class_weights = {},
                    bool flip = false)
      : graph_(graph),
        backend_(MakeTestBackend(threads)),
        tower_(graph, *backend_, kSeed, std::move(class_weights), flip) {}

  Arena Step(const SampleBatch& batch, const Arena& weights, float scale = 1) {
    tower_.Prepare(batch.Input().count, Mode::kTraining);
    tower_.Forward(batch.Input(), Mode::kTraining, weights.floats(), version_++, nullptr, sums);
    Arena gradients(graph_.arena_floats());
    tower_.Backward(scale, weights.floats(), gradients.floats(), nullptr);
    return gradients;
  }
  LossSums Evaluate(const SampleBatch& batch, const Arena& weights) {
    tower_.Prepare(batch.Input().count, Mode::kInference);
    return ForwardOf(tower_, batch.Input(), Mode::kInference, weights, version_++);
  }
  Tower& tower() { return tower_; }
  LossSums sums;

 private:
  const Graph& graph_;
  std::unique_ptr<Backend> backend_;
  Tower tower_;
  int64_t version_ = 0;
};

}  // namespace muster
