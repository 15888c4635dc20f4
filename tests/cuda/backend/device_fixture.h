// The CUDA backend on the software GPU, and a step of a small network on it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/cuda/backend/device_step.h"
#include "tests/cuda/software_gpu/control.h"
#include "tests/nn/test_networks.h"
#include "tests/nn/tower_run.h"
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/nn/completions.h"
#include "worker/nn/device_view.h"

namespace muster {

inline constexpr double kPatience = 30;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override { software_gpu::Reset({}); }
  void TearDown() override {
    EXPECT_TRUE(software_gpu::Leaks().empty()) << software_gpu::Leaks().front();
    software_gpu::Reset({});
  }

  // Runs a step and returns its gradients. Each layer's are copied out after the layer.
  std::vector<float> Step(bool held = false) {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
    backend->Enter();
    Tower tower(graph_, *backend, kSeed);
    tower.Prepare(batch_.Input().count, Mode::kTraining);
    Arena slot(graph_.arena_floats());
    std::fill(slot.floats().begin(), slot.floats().end(), 0.0f);
    DeviceView weights(*backend, weights_.floats()), gradients(*backend, slot.floats());
    Completions completions(*backend);
    LossSums sums;
    const DrainAtExit drain{*backend};
    const auto queue_step = [&] {
      weights.CopyIn(0, graph_.arena_floats());
      tower.Forward(batch_.Input(), Mode::kTraining, weights.floats(), ++version_, nullptr, sums);
      completions.Then(Queue::kCopyOut, [&] { ++reported_; });
      tower.Backward(1, weights.floats(), gradients.floats(), [&](int layer) {
        for (const Variable& v : graph_.variables()) {
          if (v.layer == layer) gradients.CopyOut(v.offset, v.offset + v.count);
        }
      });
      completions.Then(Queue::kCopyOut, [&] { ++reported_; });
    };
    if (held) {
      queue_step();  // the first step creates the events that later ones reuse
      completions.RunAll(kPatience);
      reported_ = 0;
      const software_gpu::Step step;
      const software_gpu::Hold hold;
      queue_step();
      EXPECT_EQ(reported_, 0);
    } else {
      queue_step();
    }
    completions.RunAll(kPatience);
    return {slot.floats().begin(), slot.floats().end()};
  }

  // Expects the CPU's results within the float error of another summation order.
  void ExpectRight(const std::vector<float>& got) const {
    const Arena expected = TowerRun(graph_).Step(batch_, weights_);
    for (const Variable& v : graph_.variables()) {
      const auto part = std::span(got).subspan(v.offset, v.count);
      EXPECT_LE(RelativeL2(part, ToDoubles(expected.floats().subspan(v.offset, v.count))), 1e-5)
          << v.name;
    }
  }

  const Graph graph_ = reference::MakeGraph(kNetworks[0].layers, kNetworks[0].input);
  const Arena weights_ = RandomWeights(graph_);
  const SampleBatch batch_{graph_, 10, 4};
  CudaOptions options_;
  int reported_ = 0;
  int64_t version_ = 0;
};

}  // namespace muster
