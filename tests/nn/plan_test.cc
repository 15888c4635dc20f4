// Fusion, work in place, and shared memory. (tower_test.cc tests the results.)
#include "worker/nn/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "common/base/random.h"
#include "tests/nn/reference.h"
#include "worker/nn/backward_plan.h"
#include "worker/nn/memory_plan.h"

namespace muster {
namespace {

std::vector<std::string> Names(const Graph& graph, const Plan& plan) {
  std::vector<std::string> names;
  for (const PlanStep& step : plan.steps) {
    const std::string activation = Name(step.activation);
    names.push_back(graph.layers()[step.layer].name + (step.fuse_add ? "+add" : "") +
                    (activation.empty() ? "" : "+" + activation));
  }
  return names;
}

int Additions(const BackwardPlan& plan) {
  int additions = 0;
  for (const BackwardStep& step : plan.steps) additions += step.step < 0;
  return additions;
}

const char kResidual[] = R"(
    layer { name: "conv1" conv2d { filters: 4 kernel: 1 } }
    layer { name: "relu1" relu {} }
    layer { name: "conv2" conv2d { filters: 4 kernel: 1 } }
    layer { name: "bn2" batch_norm {} }
    layer { name: "relu2" relu6 {} }
    layer { name: "conv3" conv2d { filters: 4 kernel: 1 } }
    layer { name: "bn3" batch_norm {} }
    layer { name: "add" input: ["bn3", "relu1"] add {} }
    layer { name: "relu3" relu {} }
    layer { name: "drop" dropout { rate: 0.5 } }
    layer { name: "pool" global_avg_pool {} }
    layer { name: "logits" dense { units: 3 } }
    layer { name: "loss" softmax_cross_entropy {} })";

TEST(PlanTest, FusesAResidualBlock) {
  const Graph graph = reference::MakeGraph(kResidual, {4, 4, 3});
  const Plan plan = MakePlan(graph, Mode::kTraining);
  EXPECT_EQ(Names(graph, plan),
            (std::vector<std::string>{"conv1+relu", "conv2", "bn2+relu6", "conv3", "bn3+add+relu",
                                      "drop", "pool", "logits"}));
  // The output of conv1+relu gets two contributions. The derivative is applied to their sum.
  const BackwardPlan backward = MakeBackwardPlan(graph, plan);
  EXPECT_EQ(Additions(backward), 1);
  for (const BackwardStep& step : backward.steps) {
    if (step.step >= 0) continue;
    EXPECT_EQ(step.relu_value, plan.steps[0].output);
  }
}

TEST(PlanTest, DropsDropoutInInference) {
  const Graph graph = reference::MakeGraph(kResidual, {4, 4, 3});
  for (const std::string& name : Names(graph, MakePlan(graph, Mode::kInference))) {
    EXPECT_NE(name, "drop");
  }
}

TEST(PlanTest, KeepsWhatSeveralLayersRead) {
  const Graph graph = reference::MakeGraph(R"(
      layer { name: "bn" batch_norm {} }
      layer { name: "relu" relu {} }
      layer { name: "relu6" input: "bn" relu6 {} }
      layer { name: "sum" input: ["relu", "relu6", "bn"] add {} }
      layer { name: "logits" dense { units: 3 } }
      layer { name: "loss" softmax_cross_entropy {} })",
                                           {4, 4, 3});
  const Plan plan = MakePlan(graph, Mode::kTraining);
  EXPECT_EQ(Names(graph, plan), (std::vector<std::string>{"bn", "relu", "relu6", "sum", "logits"}));
  std::set<int> places;  // all distinct, so nothing is overwritten
  for (const PlanValue& value : plan.values) EXPECT_TRUE(places.insert(value.place).second);
}

// Only a function whose slope is computed from its output may overwrite its input.
TEST(PlanTest, KeepsTheInputsOfFunctionsThatBackwardReads) {
  const Graph graph = reference::MakeGraph(R"(
      layer { name: "conv1" conv2d { filters: 4 kernel: 1 } }
      layer { name: "gelu" gelu {} }
      layer { name: "conv2" conv2d { filters: 4 kernel: 1 } }
      layer { name: "sigmoid" sigmoid {} }
      layer { name: "silu" silu {} }
      layer { name: "tanh" tanh {} }
      layer { name: "logits" dense { units: 3 } }
      layer { name: "loss" softmax_cross_entropy {} })",
                                           {4, 4, 3});
  const Plan plan = MakePlan(graph, Mode::kTraining);
  std::vector<int> places;
  for (const PlanValue& value : plan.values) places.push_back(value.place);
  // The sigmoid is where conv2's output was, and the tanh where the silu's was.
  EXPECT_EQ(places, (std::vector<int>{0, 1, 2, 2, 4, 4, 6}));
}

TEST(PlanTest, AChainAddsNoGradients) {
  const Graph graph = reference::MakeGraph(R"(
      layer { name: "conv" conv2d { filters: 8 kernel: 3 } }
      layer { name: "relu" relu {} }
      layer { name: "pool" max_pool { kernel: 2 } }
      layer { name: "dense" dense { units: 8 } }
      layer { name: "relu2" relu {} }
      layer { name: "logits" dense { units: 3 } }
      layer { name: "loss" softmax_cross_entropy {} })",
                                           {8, 8, 3});
  const Plan plan = MakePlan(graph, Mode::kTraining);
  EXPECT_EQ(Names(graph, plan),
            (std::vector<std::string>{"conv+relu", "pool", "dense+relu", "logits"}));
  EXPECT_EQ(Additions(MakeBackwardPlan(graph, plan)), 0);
}

TEST(MemoryPlanTest, KeepsApartWhatIsNeededAtTheSameTime) {
  const RandomStream stream(1, RandomPurpose::kSynthetic, 0, 0, 0);
  std::vector<Lifetime> buffers(60);
  size_t apart = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto bits = stream.Block(static_cast<uint32_t>(i));
    const int first = static_cast<int>(bits[0] % 40);
    buffers[i] = {bits[1] % 4000, first, first + static_cast<int>(bits[2] % 10)};
    apart += buffers[i].bytes;
  }
  const size_t total = PlaceBuffers(buffers);
  EXPECT_LT(total, apart);
  for (const Lifetime& a : buffers) {
    EXPECT_EQ(a.offset % 64, 0u);
    EXPECT_LE(a.offset + a.bytes, total);
    for (const Lifetime& b : buffers) {
      if (&a == &b || a.last < b.first || b.last < a.first) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
    }
  }
}

TEST(MemoryPlanTest, SharesWhatIsNeededOneAfterTheOther) {
  std::vector<Lifetime> buffers = {{1024, 0, 1}, {1024, 2, 3}, {512, 4, 9}};
  PlaceBuffers(buffers);
  for (const Lifetime& buffer : buffers) EXPECT_EQ(buffer.offset, 0u);
}

}  // namespace
}  // namespace muster
