// Steps that are repeated as CUDA graphs.
#include <cuda_runtime_api.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/cuda/backend/device_fixture.h"

namespace muster::graphs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The lines of the log that are about graphs.
std::vector<std::string>& Lines() {
  static std::vector<std::string> lines;
  return lines;
}

// What a step of a training differs in.
struct StepInputs {
  size_t weights = 0, batch = 0, gradients = 0;
  int64_t epoch = 0;
  float scale = 1;
};

class CudaGraphTest : public CudaDeviceTest {
 protected:
  CudaGraphTest() {
    Lines().clear();
    options_.log = [](LogLevel, const std::string& line) {
      if (line.find("graph") != std::string::npos) Lines().push_back(line);
    };
  }

  // Runs the steps one after the other on one tower and returns the gradients of each.
  std::vector<std::vector<float>> Run(const Graph& graph, const std::vector<StepInputs>& steps,
                                      HookLayers hooks = {}) const {
    const std::unique_ptr<Backend> backend = cuda::MakeCudaWorker(options_).backend;
    backend->Enter();
    Tower tower(graph, *backend, kSeed, {}, false, std::move(hooks));
    std::vector<Arena> weights, gradients;
    std::vector<SampleBatch> batches;
    std::vector<DeviceView> read, written;
    for (int i = 0; i < 2; ++i) {
      weights.push_back(RandomWeights(graph));
      for (float& value : weights.back().floats()) value *= 1 + 0.125f * static_cast<float>(i);
      gradients.emplace_back(graph.arena_floats());
      batches.emplace_back(graph, 10 * i, 4);
    }
    for (int i = 0; i < 2; ++i) {
      read.emplace_back(*backend, std::as_const(weights[static_cast<size_t>(i)]).floats());
      written.emplace_back(*backend, gradients[static_cast<size_t>(i)].floats());
    }
    tower.Prepare(4, Mode::kTraining);
    Completions completions(*backend);
    LossSums sums;
    const DrainAtExit drain{*backend};
    std::vector<std::vector<float>> results;
    int64_t version = 0;
    for (const StepInputs& step : steps) {
      TowerInput input = batches[step.batch].Input();
      input.epoch = step.epoch;
      DeviceView& from = read[step.weights];
      DeviceView& to = written[step.gradients];
      from.CopyIn(0, graph.arena_floats());
      tower.Forward(input, Mode::kTraining, from.floats(), ++version, nullptr, sums);
      tower.Backward(step.scale, from.floats(), to.floats(), nullptr);
      to.CopyOut(0, graph.arena_floats());
      completions.Then(Queue::kCopyOut, [] {});
      completions.RunAll(kPatience);
      const std::span<const float> floats = gradients[step.gradients].floats();
      for (const Variable& v : graph.variables()) {
        results.emplace_back(floats.begin() + static_cast<ptrdiff_t>(v.offset),
                             floats.begin() + static_cast<ptrdiff_t>(v.offset + v.count));
      }
    }
    return results;
  }
};

// Everything that may differ between two steps differs between two of these, also after the work
// was recorded.
const std::vector<StepInputs> kSteps{{.weights = 0},
                                     {.weights = 1, .batch = 1},
                                     {.weights = 0},
                                     {.weights = 1, .batch = 1},
                                     {.weights = 0},
                                     {.weights = 0, .batch = 1},
                                     {.weights = 1, .batch = 1, .gradients = 1},
                                     {.weights = 1, .batch = 0, .gradients = 1},
                                     {.weights = 0, .epoch = 1},
                                     {.weights = 0, .batch = 1, .epoch = 1},
                                     {.weights = 0, .epoch = 1},
                                     {.weights = 0, .scale = 0.5f},
                                     {.weights = 0, .batch = 1, .scale = 0.5f},
                                     {.weights = 0, .scale = 0.5f},
                                     {.weights = 1, .batch = 1}};

TEST_F(CudaGraphTest, HaveTheBitsOfSingleKernels) {
  for (const NetworkCase& network : kNetworks) {
    const Graph graph = reference::MakeGraph(network.layers, network.input);
    for (const auto precision : {CudaOptions::Precision::kFp32, CudaOptions::Precision::kBf16}) {
      SCOPED_TRACE(fmt::format("{} {}", network.name, static_cast<int>(precision)));
      options_.precision = precision;
      options_.graphs = false;
      const auto expected = Run(graph, kSteps);
      const int kernels = software_gpu::Calls("cudaLaunchKernel");
      EXPECT_EQ(software_gpu::Calls("cudaStreamBeginCapture"), 0);
      options_.graphs = true;
      EXPECT_EQ(Run(graph, kSteps), expected);
      EXPECT_GT(software_gpu::Calls("cudaGraphLaunch"), 0);
      EXPECT_LT(software_gpu::Calls("cudaLaunchKernel") - kernels, kernels);
      EXPECT_THAT(Lines(), ElementsAre());
      software_gpu::Reset({});
    }
  }
}

// The third and fifth steps repeat the first: one launch for each part of a pass between two hooks.
TEST_F(CudaGraphTest, EachPartBetweenTwoHooksIsOneLaunch) {
  const Graph& graph = graph_;
  HookLayers first(graph.layers().size());
  for (const Layer& layer : graph.layers()) {
    if (!layer.has_variables()) continue;
    first[static_cast<size_t>(&layer - graph.layers().data())] = true;
    break;
  }
  const std::vector<StepInputs> steps(5);
  const auto expected = Run(graph, steps);
  software_gpu::Reset({});
  EXPECT_EQ(Run(graph, steps, first), expected);
  // The input of a pass alternates between two places, so steps 3 to 5 are repetitions. The layers
  // before the first hook, if any, are a part of their own.
  const bool begins_with_variables = graph.layers()[0].has_variables();
  EXPECT_EQ(software_gpu::Calls("cudaGraphLaunch"), begins_with_variables ? 6 : 9);
  EXPECT_EQ(software_gpu::Calls("cudaStreamBeginCapture"), begins_with_variables ? 4 : 6);
}

// Every second step has a loss scale of its own, which never comes again. More of them than are
// kept do not displace the work of the other steps.
TEST_F(CudaGraphTest, WorkThatIsRepeatedIsKept) {
  struct Counts {
    int recorded, launched;
  };
  const auto counts = [&](int pairs) {
    std::vector<StepInputs> steps;
    for (int i = 0; i < pairs; ++i) {
      steps.push_back({});
      steps.push_back({.scale = 1 / static_cast<float>(i + 2)});
    }
    software_gpu::Reset({});
    (void)Run(graph_, steps);
    return Counts{software_gpu::Calls("cudaStreamBeginCapture"),
                  software_gpu::Calls("cudaGraphLaunch")};
  };
  const Counts two = counts(2), three = counts(3), many = counts(40);
  EXPECT_EQ(many.recorded, two.recorded);
  EXPECT_EQ(many.launched, two.launched + 38 * (three.launched - two.launched));
}

// The work is queued without graphs, also by all later steps, and a line of the log says why.
TEST_F(CudaGraphTest, ADriverThatDoesNotRecordCostsOnlyTime) {
  const std::vector<StepInputs> steps(7);
  options_.graphs = false;
  const auto expected = Run(graph_, steps);
  const int kernels = software_gpu::Calls("cudaLaunchKernel") / 7 * 2;  // in the first two steps
  options_.graphs = true;
  for (const auto& [call, nth] :
       {std::pair("cudaStreamBeginCapture", 1), std::pair("cudaStreamEndCapture", 1),
        std::pair("cudaGraphInstantiateWithFlags", 1),
        std::pair("cudaLaunchKernel", kernels + 1)}) {
    SCOPED_TRACE(call);
    software_gpu::Reset({});
    Lines().clear();
    software_gpu::FailCall(call, nth, cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(Run(graph_, steps), expected);
    EXPECT_THAT(Lines(), ElementsAre(HasSubstr("cannot use CUDA graphs: ")));
    EXPECT_EQ(software_gpu::Calls("cudaStreamBeginCapture"), 1);
    EXPECT_EQ(software_gpu::Calls("cudaGraphLaunch"), 0);
  }
}

TEST_F(CudaGraphTest, ALaunchThatFailsIsAnError) {
  const std::vector<StepInputs> steps(7);
  (void)Run(graph_, steps);
  const int launches = software_gpu::Calls("cudaGraphLaunch");
  for (const int nth : {1, launches}) {
    software_gpu::Reset({});
    software_gpu::FailCall("cudaGraphLaunch", nth, cudaErrorUnknown);
    EXPECT_THROW((void)Run(graph_, steps), Error);
  }
}

}  // namespace
}  // namespace muster::graphs
