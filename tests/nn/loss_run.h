// Runs one loss of the CPU backend, forward and backward.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

#include "tests/nn/op_case.h"
#include "tests/nn/test_backend.h"

namespace muster {

struct LossRun {
  LossSums sums;
  std::vector<float> gradient;
  std::vector<int32_t> predictions;  // -2 if none was written
};

// `layer`: "softmax_cross_entropy {}". class_weights, share: as in LossArgs.
inline LossRun RunLossLayer(const std::string& layer, const std::vector<float>& logits,
                            const std::vector<int32_t>& labels, float scale = 1,
                            bool input_is_relu = false,
                            const std::vector<float>& class_weights = {}, float share = 1) {
  const auto backend = MakeTestBackend(1);
  const auto batch = static_cast<int64_t>(labels.size());
  const Graph graph =
      reference::MakeGraph(fmt::format("layer {{ name: 'out' dense {{ units: {} }} }}"
                                       "layer {{ name: 'loss' {} }}",
                                       static_cast<int64_t>(logits.size()) / batch, layer),
                           {1, 1, 4});
  const auto op =
      backend->MakeLoss(graph.layers().back(), {.batch = batch, .input_is_relu = input_is_relu});
  const Arena x = ToArena(logits);
  Arena state(op->state_bytes() / sizeof(float)), gradient(logits.size());
  LossRun run;
  run.predictions.resize(labels.size(), -2);
  const LossArgs args{.logits = x.floats().data(),
                      .labels = labels.data(),
                      .state = state.floats().data(),
                      .class_weights = class_weights.empty() ? nullptr : class_weights.data(),
                      .share = share};
  op->Forward(args, &run.sums, run.predictions.data());
  op->Backward(args, scale, gradient.floats().data());
  run.gradient.assign(gradient.floats().begin(), gradient.floats().end());
  return run;
}

}  // namespace muster
