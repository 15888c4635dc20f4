#include "common/graph.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/error.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

config::Model Parse(const std::string& text) {
  config::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  return model;
}

Graph Build(const std::string& text, const Shape& input = {9, 7, 3}) {
  return Graph::Build(Parse(text), input);
}

std::string ErrorOf(const std::string& text) {
  try {
    Build(text);
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
}

const char kEnd[] =
    R"( layer { name: "fc" dense { units: 4 } } layer { name: "loss" softmax_cross_entropy {} })";

TEST(Graph, InfersShapesVariablesAndFlops) {
  const Graph graph = Build(std::string(R"(
    layer { name: "c" conv2d { filters: 8 kernel: [3, 5] stride: [2, 1] padding: SAME } }
    layer { name: "r" relu {} }
    layer { name: "p" max_pool { kernel: 2 } }
    layer { name: "a" avg_pool { kernel: 3 stride: 1 padding: EXPLICIT pad: 1 } })") +
                            kEnd);
  const auto& layers = graph.layers();
  EXPECT_EQ(layers[0].output_shape, (Shape{5, 7, 8}));  // ceil(9/2), 7
  EXPECT_EQ(layers[2].output_shape, (Shape{2, 3, 8}));  // stride is the kernel
  EXPECT_EQ(layers[3].output_shape, (Shape{2, 3, 8}));
  EXPECT_EQ(layers[4].input_shape.elements(), 48);
  const auto& conv = std::get<Conv2dSpec>(layers[0].spec);
  EXPECT_EQ(conv.pads.top, 1);  // (5-1)*2+3-9 = 2
  EXPECT_EQ(conv.pads.left, 2);
  EXPECT_EQ(graph.variables()[0].ShapeString(), "[8,3,5,3]");
  EXPECT_EQ(graph.variables()[2].ShapeString(), "[4,48]");
  EXPECT_EQ(graph.parameter_count(), 8 * 45 + 8 + 4 * 48 + 4);
  EXPECT_DOUBLE_EQ(layers[0].forward_flops, 2.0 * 5 * 7 * 8 * 45);
  for (const Variable& variable : graph.variables()) EXPECT_EQ(variable.offset % 16, 0u);
  EXPECT_EQ(graph.variables()[1].name, "c/bias");
}

TEST(Graph, SamePaddingPutsTheOddRowBelow) {
  const Graph graph = Build(
      std::string(R"(layer { name: "p" max_pool { kernel: 3 stride: 2 padding: SAME } })") + kEnd,
      {24, 24, 4});
  const auto& pool = std::get<PoolSpec>(graph.layers()[0].spec);
  EXPECT_EQ(graph.layers()[0].output_shape, (Shape{12, 12, 4}));
  EXPECT_EQ(pool.pads.top, 0);
  EXPECT_EQ(pool.pads.bottom, 1);
}

TEST(Graph, ErrorsNameTheLayer) {
  EXPECT_THAT(ErrorOf(R"(layer { name: "big" conv2d { filters: 1 kernel: 11 } })"),
              AllOf(HasSubstr("\"big\" (conv2d)"), HasSubstr("11"), HasSubstr("9")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" input: "y" relu {} })"),
              AllOf(HasSubstr("\"x\""), HasSubstr("\"y\"")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" relu {} } layer { name: "x" relu {} })"),
              HasSubstr("another layer"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "1x" relu {} })"), HasSubstr("name"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" })"), HasSubstr("conv2d, dense"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" softmax_cross_entropy {} })"), HasSubstr("flatten"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "fc" dense { units: 3 } })"),
              HasSubstr("expected the loss"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("at least one layer"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" conv2d { filters: 2 kernel: [1, 2, 3] } })"),
              HasSubstr("kernel"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" conv2d { filters: 2 kernel: 3 pad: 1 } })"),
              HasSubstr("EXPLICIT"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" max_pool { kernel: 3 padding: EXPLICIT pad: 3 } })"),
              HasSubstr("padding only"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "a" dense { units: 3 } } layer { name: "b" relu {} }
                         layer { name: "c" input: "a" relu {} } layer { name: "loss" softmax_cross_entropy {} })"),
              HasSubstr("chain"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "loss" input: "loss" softmax_cross_entropy {} })"),
              HasSubstr("earlier"));
}

TEST(Graph, HashTellsGraphsApart) {
  const std::string base = R"(layer { name: "c" conv2d { filters: 8 kernel: 3 padding: SAME } })";
  const uint64_t hash = Build(base + kEnd).Hash();
  EXPECT_EQ(Build(base + kEnd).Hash(), hash);
  EXPECT_NE(Build(base + kEnd, {9, 9, 3}).Hash(), hash);
  EXPECT_NE(Build(base + R"( layer { name: "r" relu {} })" + kEnd).Hash(), hash);
  EXPECT_NE(
      Build(R"(layer { name: "c" conv2d { filters: 8 kernel: 3 padding: EXPLICIT pad: 2 } })" +
            std::string(kEnd))
          .Hash(),
      hash);
}

}  // namespace
}  // namespace muster
