// Many updates of one parameter buffer without a server. Weights, state and average persist.
#pragma once

#include <google/protobuf/text_format.h>

#include <functional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/plan/chunks.h"
#include "ps/update/choose_kernels.h"
#include "ps/update/optimizer.h"
#include "ps/update/segments.h"
#include "ps/update/update.h"

namespace muster::testing {

inline config::Optimizer ParseOptimizer(const std::string& text) {
  config::Optimizer settings;
  MUSTER_CHECK(google::protobuf::TextFormat::ParseFromString(text, &settings));
  return settings;
}

struct UpdateRun {
  UpdateRun(const config::Optimizer& settings, std::vector<float> initial, std::vector<Segment> cut,
            const UpdateKernelTable& kernels = *AvailableKernels().back())
      : optimizer(settings, kernels), segments(std::move(cut)), weights(initial), next(initial) {
    for (size_t i = 0; i < optimizer.state_arenas(); ++i) {
      state[i].resize(initial.size());
      next_state[i].resize(initial.size());
    }
    if (settings.has_ema_decay()) average = next_average = initial;
  }

  // Does update number `update`, counting from 1, in chunks of `chunk_floats`.
  bool Step(int64_t update, double rate, const std::vector<float>& gradient,
            size_t chunk_floats = SIZE_MAX, float gradient_scale = 1) {
    const TreeSum tree({{0, 0}}, 1);
    bool finite = true;
    for (size_t begin = 0; begin < weights.size();) {
      const size_t end = begin + std::min(chunk_floats, weights.size() - begin);
      ChunkGradient parts{&tree, wire::FP32, {gradient.data() + begin}};
      ChunkUpdate chunk{.chunk = {begin, end, 0, 0},
                        .gradient = std::move(parts),
                        .averaged = {},
                        .rule = optimizer.RuleFor(update, rate),
                        .segments = segments,
                        .weights = weights,
                        .next_weights = next,
                        .state = {state[0], state[1]},
                        .next_state = {next_state[0], next_state[1]},
                        .average = average,
                        .next_average = next_average,
                        .stream = stream};
      chunk.rule.gradient_scale = gradient_scale;
      finite = ApplyUpdate(chunk) && finite;
      begin = end;
    }
    weights.swap(next);
    for (int i = 0; i < 2; ++i) state[i].swap(next_state[i]);
    average.swap(next_average);
    return finite;
  }

  Optimizer optimizer;
  bool stream = false;  // stores new values past the cache
  std::vector<Segment> segments;
  std::vector<float> weights, next, average, next_average;
  std::vector<float> state[2], next_state[2];
};

}  // namespace muster::testing
