// Expects that a tower with `flip` takes the mean of the logits of images and mirror images.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/nn/tower_run.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace muster {

// The results of a forward pass in inference, and the number of layers that called the hook.
struct Inference {
  std::vector<float> logits;
  std::vector<int32_t> predictions;
  LossSums sums;
  int layers = 0;
};

inline Inference Infer(Backend& backend, const Graph& graph, const Arena& weights,
                       const SampleBatch& batch, bool flip) {
  TowerInput input = batch.Input();
  const auto count = static_cast<size_t>(input.count);
  Inference result{std::vector<float>(count * static_cast<size_t>(graph.outputs())),
                   std::vector<int32_t>(count)};
  input.logits = result.logits.data();
  input.predictions = result.predictions.data();
  Tower tower(graph, backend, kSeed, {}, flip);
  tower.Prepare(input.count, Mode::kInference);
  result.sums =
      ForwardOf(tower, input, Mode::kInference, weights, 1, [&](int) { ++result.layers; });
  return result;
}

// The backend computes in host memory.
inline void ExpectFlips(Backend& backend, const Graph& graph, const Arena& weights,
                        ElementType logits_type) {
  constexpr int64_t kCount = 5;
  const SampleBatch batch(graph, 0, kCount);
  SampleBatch mirror(graph, 0, kCount);
  const Shape shape = graph.input_shape();
  const int64_t row = shape.width * shape.channels;
  for (int64_t i = 0; i < kCount * shape.elements(); ++i) {
    const int64_t column = i % row / shape.channels;
    const int64_t from = i + (shape.width - 1 - 2 * column) * shape.channels;
    mirror.images.floats()[static_cast<size_t>(i)] =
        batch.images.floats()[static_cast<size_t>(from)];
  }
  const Inference plain = Infer(backend, graph, weights, batch, false),
                  other = Infer(backend, graph, weights, mirror, false),
                  got = Infer(backend, graph, weights, batch, true);
  EXPECT_EQ(plain.logits != other.logits, shape.width > 1);
  std::vector<float> mean = plain.logits;
  for (size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + other.logits[i]) / 2;
  RoundTo(logits_type, mean);
  EXPECT_EQ(got.logits, mean);
  EXPECT_EQ(got.layers, plain.layers);

  const auto cpu = MakeCpuBackend(1);
  const auto loss =
      cpu->MakeLoss(graph.layers().back(), {.batch = kCount, .mode = Mode::kInference});
  Arena state(loss->state_bytes() / sizeof(float) + 1);
  LossSums sums;
  std::vector<int32_t> predictions(kCount);
  loss->Forward(
      {.logits = mean.data(), .labels = batch.labels.data(), .state = state.floats().data()}, &sums,
      predictions.data());
  EXPECT_NEAR(got.sums.loss, sums.loss, 1e-5 * std::abs(sums.loss));
  EXPECT_EQ(got.sums.correct, sums.correct);
  EXPECT_EQ(got.predictions, predictions);
}

}  // namespace muster
