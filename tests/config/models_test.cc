// The model files in configs/models are valid and describe the networks that they claim to be.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "common/config/build_graph.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "tests/base/paths.h"

namespace muster {
namespace {

// `classes`: the outputs of a last layer whose units depend on the data.
Graph Load(const std::string& name, const Shape& input, uint32_t classes = 1000) {
  const std::string path = SourcePath("configs/models/") + name + ".txtpb";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  config::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text.str(), &model)) << path;
  EXPECT_EQ(model.name(), name);
  config::Dense& last = *model.mutable_layer(model.layer_size() - 2)->mutable_dense();
  if (!last.has_units()) last.set_units(classes);
  return BuildGraph(model, input);
}

// Counts convolutions and dense layers only, as papers do.
int64_t MultiplyAdds(const Graph& graph) {
  double flops = 0;
  for (const Layer& layer : graph.layers()) {
    if (layer.kind == "conv2d" || layer.kind == "dense") flops += layer.forward_flops;
  }
  return static_cast<int64_t>(flops / 2);
}

// Parameters and multiply-adds equal those of the networks in PyTorch and torchvision. The papers
// round both.

TEST(Models, Linear) {
  EXPECT_EQ(Load("linear", {28, 28, 1}).layout().parameter_count(), 28 * 28 * 10 + 10);
}

TEST(Models, Cifar10Tutorial) {
  EXPECT_EQ(Load("cifar10_tutorial", {24, 24, 3}).layout().parameter_count(), 1'068'298);
}

TEST(Models, MultiGpuCnn) {
  EXPECT_EQ(Load("multigpu_cnn", {28, 28, 1}).layout().parameter_count(), 20'217'226);
  EXPECT_EQ(Load("multigpu_cnn", {32, 32, 3}).layout().parameter_count(), 29'657'610);
}

TEST(Models, ResNet20) {
  const Graph graph = Load("resnet20", {32, 32, 3});
  EXPECT_EQ(graph.layout().parameter_count(), 272'474);
  EXPECT_EQ(graph.classes(), 10);
  EXPECT_EQ(MultiplyAdds(graph), 40'813'184);
}

TEST(Models, ResNet18) {
  const Graph graph = Load("resnet18", {32, 32, 3});
  EXPECT_EQ(graph.layout().parameter_count(), 11'173'962);
  EXPECT_EQ(graph.classes(), 10);
  EXPECT_EQ(MultiplyAdds(graph), 555'422'720);
}

TEST(Models, OfImageNet) {
  const auto expect = [](const char* name, int64_t parameters, int64_t multiply_adds) {
    const Graph graph = Load(name, {224, 224, 3});
    EXPECT_EQ(graph.layout().parameter_count(), parameters) << name;
    EXPECT_EQ(MultiplyAdds(graph), multiply_adds) << name;
  };
  expect("resnet18_imagenet", 11'689'512, 1'814'073'344);
  expect("resnet34_imagenet", 21'797'672, 3'663'761'408);
  expect("resnet50_imagenet", 25'557'032, 4'089'184'256);
  expect("mobilenet_v2", 3'504'872, 300'774'272);
  EXPECT_EQ(Load("mobilenet_v2", {224, 224, 3}, 2).layout().parameter_count(), 2'226'434);
}

// All image sizes that the comments allow, with the size before the last layer.
TEST(Models, ReduceTheImageAsTheirPapersDo) {
  const auto last_image = [](const Graph& graph) {
    Shape shape;
    for (const Layer& layer : graph.layers()) {
      if (layer.kind == "conv2d") shape = layer.output_shape;
    }
    return shape;
  };
  EXPECT_EQ(last_image(Load("resnet20", {32, 32, 3})), (Shape{8, 8, 64}));
  EXPECT_EQ(last_image(Load("resnet18", {32, 32, 3})), (Shape{4, 4, 512}));
  EXPECT_EQ(last_image(Load("mobilenet_v2", {224, 224, 3})), (Shape{7, 7, 1280}));
  EXPECT_EQ(last_image(Load("resnet50_imagenet", {224, 224, 3})), (Shape{7, 7, 2048}));
}

}  // namespace
}  // namespace muster
