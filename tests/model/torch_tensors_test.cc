// PyTorch's names, shapes and layouts of a network's variables. These are small cases that can be
// worked out by hand; tests/torch compares with PyTorch itself.
#include "common/model/torch_tensors.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/model/small_graph.h"

namespace muster::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<std::string> Described(const TorchTensors& torch) {
  std::vector<std::string> lines;
  for (const TorchTensor& tensor : torch.tensors()) {
    lines.push_back(tensor.name() + " " + tensor.ShapeString());
  }
  return lines;
}

// The tensor of this name in PyTorch's layout, for a buffer with 1, 2, 3, …
std::vector<float> InTorch(const Graph& graph, const std::string& name) {
  const TorchTensors torch(graph);
  const std::vector<float> arena = Counted(graph);
  for (const TorchTensor& tensor : torch.tensors()) {
    if (tensor.name() != name) continue;
    const Variable& variable = graph.variables()[static_cast<size_t>(tensor.variable())];
    const std::span<const float> ours = std::span(arena).subspan(variable.offset, variable.count);
    std::vector<float> values(variable.count), back(variable.count);
    tensor.ToTorch(ours, values);
    tensor.FromTorch(values, back);
    EXPECT_THAT(back, ElementsAreArray(ours));
    return values;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(TorchTensors, NamesAndShapes) {
  const TorchTensors torch(SmallGraph(R"(
      layer { name: "stem/conv" conv2d { filters: 4 kernel: [3, 5] use_bias: false } }
      layer { name: "stem/norm" batch_norm {} }
      layer { name: "depthwise" conv2d { filters: 4 kernel: 1 groups: 4 } }
      layer { name: "fc" dense { units: 2 } })",
                                      {8, 8, 3}));
  EXPECT_THAT(Described(torch),
              ElementsAre("stem.conv.weight [4,3,3,5]", "stem.norm.weight [4]",
                          "stem.norm.bias [4]", "stem.norm.running_mean [4]",
                          "stem.norm.running_var [4]", "depthwise.weight [4,1,1,1]",
                          "depthwise.bias [4]", "fc.weight [2,96]", "fc.bias [2]"));
  EXPECT_THAT(torch.counters(), ElementsAre("stem.norm.num_batches_tracked"));
  EXPECT_TRUE(torch.flattens_channels_first());
}

TEST(TorchTensors, NormalisationsOfSamplesHaveNoStatistics) {
  const TorchTensors torch(SmallGraph(R"(
      layer { name: "group" group_norm { groups: 2 } }
      layer { name: "layer" layer_norm {} }
      layer { name: "fc" dense { units: 2 } })",
                                      {1, 1, 4}));
  EXPECT_THAT(Described(torch),
              ElementsAre("group.weight [4]", "group.bias [4]", "layer.weight [4]",
                          "layer.bias [4]", "fc.weight [2,4]", "fc.bias [2]"));
  EXPECT_TRUE(torch.counters().empty());
}

// Groups of a flattened image are other channels in PyTorch's order, unless there is only one.
TEST(TorchTensors, GroupsOfAFlattenedImageNeedMustersOrder) {
  const auto channels_first = [](const std::string& norm) {
    return TorchTensors(SmallGraph("layer { name: \"flat\" flatten {} } layer { name: \"n\" " +
                                       norm + " } layer { name: \"fc\" dense { units: 2 } }",
                                   {2, 2, 3}))
        .flattens_channels_first();
  };
  EXPECT_FALSE(channels_first("group_norm { groups: 3 }"));
  EXPECT_TRUE(channels_first("group_norm { groups: 1 }"));
  EXPECT_TRUE(channels_first("layer_norm {}"));
}

TEST(TorchTensors, ALayerOfEachNameHasItsOwn) {
  const TorchTensors torch(SmallGraph(R"(
      layer { name: "a/b" dense { units: 2 } }
      layer { name: "a.b" dense { units: 2 } })",
                                      {1, 1, 2}));
  EXPECT_THAT(Described(torch),
              ElementsAre("a/b.weight [2,2]", "a/b.bias [2]", "a.b.weight [2,2]", "a.b.bias [2]"));
}

TEST(TorchTensors, ConvolutionsHaveTheInputChannelsBeforeThePixels) {
  const Graph graph =
      SmallGraph(R"(layer { name: "c" conv2d { filters: 2 kernel: [1, 2] } })", {1, 2, 3});
  // [out, height, width, in]: pixel 0 has 1, 2, 3, pixel 1 has 4, 5, 6.
  EXPECT_THAT(InTorch(graph, "c.weight"), ElementsAre(1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12));
}

// The columns for an image of 1x2 pixels and 3 channels: Muster orders them by pixel, PyTorch by
// channel.
void ExpectImageColumns(const std::string& layers, const std::string& name) {
  SCOPED_TRACE(layers);
  EXPECT_THAT(InTorch(SmallGraph(layers, {1, 2, 3}), name),
              ElementsAre(1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12));
}

TEST(TorchTensors, ColumnsAfterAFlattenAreInPyTorchsOrder) {
  const std::string dense = R"(layer { name: "fc" dense { units: 2 } })";
  ExpectImageColumns(dense, "fc.weight");  // it flattens by itself
  ExpectImageColumns(R"(layer { name: "f" flatten {} })" + dense, "fc.weight");
  ExpectImageColumns(R"(layer { name: "f" flatten {} } layer { name: "r" relu {} }
                        layer { name: "d" dropout { rate: 0.5 } })" +
                         dense,
                     "fc.weight");
  // A convolution of the row.
  ExpectImageColumns(R"(layer { name: "f" flatten {} }
                        layer { name: "fc" conv2d { filters: 2 kernel: 1 } })",
                     "fc.weight");
}

TEST(TorchTensors, OnlyTheFirstDenseLayerIsReordered) {
  const Graph graph = SmallGraph(R"(
      layer { name: "a" dense { units: 2 } } layer { name: "b" dense { units: 2 } })",
                                 {1, 2, 3});
  EXPECT_THAT(InTorch(graph, "b.weight"), ElementsAre(1, 2, 3, 4));
}

TEST(TorchTensors, ARowsBatchNormHasTheRowsOrder) {
  const Graph graph = SmallGraph(R"(
      layer { name: "f" flatten {} } layer { name: "n" batch_norm {} }
      layer { name: "fc" dense { units: 2 } })",
                                 {1, 2, 3});
  for (const char* name : {"n.weight", "n.bias", "n.running_mean", "n.running_var"}) {
    EXPECT_THAT(InTorch(graph, name), ElementsAre(1, 4, 2, 5, 3, 6)) << name;
  }
  EXPECT_THAT(InTorch(graph, "fc.weight"), ElementsAre(1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12));
}

TEST(TorchTensors, ConcatenatedRowsKeepTheirOrders) {
  const Graph graph = SmallGraph(R"(
      layer { name: "f" flatten {} }
      layer { name: "h" input: "f" dense { units: 2 } }
      layer { name: "both" input: ["h", "f"] concat {} }
      layer { name: "fc" dense { units: 2 } })",
                                 {1, 2, 2});
  EXPECT_THAT(InTorch(graph, "fc.weight"), ElementsAre(1, 2, 3, 5, 4, 6, 7, 8, 9, 11, 10, 12));
}

// If no order of columns can account for the flattening, only convolutions are reordered, and the
// file says that images are flattened channels last.
TEST(TorchTensors, WhereTheOrderItselfCountsItStays) {
  for (const char* layers : {
           R"(layer { name: "f" flatten {} } layer { name: "n" lrn {} }
              layer { name: "fc" dense { units: 2 } })",
           R"(layer { name: "f" flatten {} }
              layer { name: "h" input: "f" dense { units: 6 } }
              layer { name: "sum" input: ["h", "f"] add {} }
              layer { name: "fc" dense { units: 2 } })",
           R"(layer { name: "c" conv2d { filters: 3 kernel: 1 } } layer { name: "f" flatten {} })",
       }) {
    const Graph graph = SmallGraph(layers, {1, 2, 3});
    const TorchTensors torch(graph);
    EXPECT_FALSE(torch.flattens_channels_first()) << layers;
    if (torch.tensors().back().name() != "fc.bias") continue;
    const std::vector<float> columns = InTorch(graph, "fc.weight");
    EXPECT_TRUE(std::ranges::is_sorted(columns)) << layers;
  }
}

}  // namespace
}  // namespace muster::testing
