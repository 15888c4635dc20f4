// A step of a tower on the software GPU, without a server.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/nn/tower_run.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"

namespace muster {

inline std::vector<float> StepOn(Backend& backend, const Graph& graph, const Arena& weights,
                                 const SampleBatch& batch, std::vector<float> class_weights = {}) {
  constexpr double kPatience = 30;
  backend.Enter();
  Tower tower(graph, backend, kSeed, std::move(class_weights));
  tower.Prepare(batch.Input().count, Mode::kTraining);
  Arena host(graph.arena_floats());
  std::fill(host.floats().begin(), host.floats().end(), 0.0f);
  DeviceView read(backend, weights.floats()), written(backend, host.floats());
  Completions completions(backend);
  LossSums sums;
  const DrainAtExit drain{backend};
  read.CopyIn(0, graph.arena_floats());
  tower.Forward(batch.Input(), Mode::kTraining, read.floats(), 1, nullptr, sums);
  tower.Backward(1, read.floats(), written.floats(), [&](int layer) {
    for (const Variable& v : graph.variables()) {
      if (v.layer == layer) written.CopyOut(v.offset, v.offset + v.count);
    }
  });
  completions.Then(Queue::kCopyOut, [] {});
  completions.RunAll(kPatience);
  return {host.floats().begin(), host.floats().end()};
}

}  // namespace muster
