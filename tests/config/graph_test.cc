#include "common/graph/graph.h"

#include <gmock/gmock-matchers.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/config/build_graph.h"
#include "proto/config.pb.h"

namespace muster {
namespace graph_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

config::Model Parse(const std::string& text) {
  config::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  return model;
}

Graph Build(const std::string& text, const Shape& input = {9, 7, 3}) {
  return BuildGraph(Parse(text), input);
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
  EXPECT_EQ(layers[2].output_shape, (Shape{2, 3, 8}));  // the stride defaults to the kernel
  EXPECT_EQ(layers[3].output_shape, (Shape{2, 3, 8}));
  EXPECT_EQ(layers[4].input_shape.elements(), 48);
  const auto& conv = std::get<Conv2dSpec>(layers[0].spec);
  EXPECT_EQ(conv.pads.top, 1);  // (5-1)*2+3-9 = 2
  EXPECT_EQ(conv.pads.left, 2);
  EXPECT_EQ(graph.variables()[0].ShapeString(), "[8,3,5,3]");
  EXPECT_EQ(graph.variables()[2].ShapeString(), "[4,48]");
  EXPECT_EQ(graph.layout().parameter_count(), 8 * 45 + 8 + 4 * 48 + 4);
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
              HasSubstr("hold only padding"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "a" dense { units: 3 } } layer { name: "b" relu {} }
                         layer { name: "c" input: "a" relu {} } layer { name: "loss" softmax_cross_entropy {} })"),
              AllOf(HasSubstr("\"b\" (relu)"), HasSubstr("no layer reads")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "data" relu {} })"), HasSubstr("reserved"));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" add {} })"),
              AllOf(HasSubstr("\"x\" (add)"), HasSubstr("at least 2 inputs, got 1")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" input: ["data", "data"] relu {} })"),
              AllOf(HasSubstr("\"x\" (relu)"), HasSubstr("1 input, got 2")));
  EXPECT_THAT(
      ErrorOf(R"(layer { name: "c" conv2d { filters: 4 kernel: 1 } }
                         layer { name: "x" input: ["c", "data"] add {} })"),
      AllOf(HasSubstr("\"x\" (add)"), HasSubstr("\"c\" is 9x7x4"), HasSubstr("\"data\" is 9x7x3")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "p" max_pool { kernel: 2 } }
                         layer { name: "x" input: ["data", "p"] concat {} })"),
              AllOf(HasSubstr("\"x\" (concat)"), HasSubstr("\"p\" is 4x3x3")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" conv2d { filters: 6 kernel: 1 groups: 2 } })"),
              AllOf(HasSubstr("3 input channels"), HasSubstr("2 equal groups")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "x" conv2d { filters: 4 kernel: 1 groups: 3 } })"),
              AllOf(HasSubstr("4 filters"), HasSubstr("3 equal groups")));
  EXPECT_THAT(ErrorOf(R"(layer { name: "loss" input: "loss" softmax_cross_entropy {} })"),
              HasSubstr("earlier"));
}

TEST(Graph, BranchesNameTheirInputs) {
  const Graph graph = Build(R"(
    layer { name: "a" conv2d { filters: 3 kernel: 1 } }
    layer { name: "b" input: "data" conv2d { filters: 6 kernel: 3 groups: 3 padding: SAME } }
    layer { name: "sum" input: ["a", "data", "a"] add {} }
    layer { name: "cat" input: ["sum", "b"] concat {} }
    layer { name: "pool" global_avg_pool {} }
    layer { name: "loss" mean_squared_error {} })");
  const auto& layers = graph.layers();
  EXPECT_EQ(layers[1].inputs, std::vector<int>{Layer::kData});
  EXPECT_EQ(layers[2].inputs, (std::vector<int>{0, Layer::kData, 0}));
  EXPECT_EQ(layers[3].output_shape, (Shape{9, 7, 9}));
  EXPECT_EQ(std::get<ConcatSpec>(layers[3].spec).channels, (std::vector<int64_t>{3, 6}));
  EXPECT_EQ(layers[4].output_shape, (Shape{1, 1, 9}));
  EXPECT_EQ(graph.classes(), 9);
  // Each filter of a group with one input channel has 9 weights.
  EXPECT_EQ(graph.variables()[static_cast<size_t>(layers[1].weights)].ShapeString(), "[6,3,3,1]");
  EXPECT_DOUBLE_EQ(layers[1].forward_flops, 2.0 * 9 * 7 * 6 * 9);
  EXPECT_DOUBLE_EQ(layers[2].forward_flops, 2.0 * 9 * 7 * 3);
}

TEST(Graph, ASingleLogitTellsTwoClassesApart) {
  const Graph one = Build(R"(
    layer { name: "logit" dense { units: 1 } }
    layer { name: "loss" sigmoid_cross_entropy {} })");
  EXPECT_EQ(one.outputs(), 1);
  EXPECT_EQ(one.classes(), 2);
  EXPECT_EQ(one.layers().back().first_class(), 1);
  const Graph three = Build(R"(
    layer { name: "logits" dense { units: 3 } }
    layer { name: "loss" sigmoid_cross_entropy {} })");
  EXPECT_EQ(three.outputs(), 3);
  EXPECT_EQ(three.classes(), 3);
  EXPECT_EQ(three.layers().back().first_class(), 0);
}

TEST(Graph, BatchNormHasStatisticsThatAreNotTrained) {
  const Graph graph = Build(std::string(R"(
    layer { name: "bn" batch_norm { momentum: 0.25 shift { learning_rate_multiplier: 2 } } })") +
                            kEnd);
  const auto& v = graph.variables();
  ASSERT_EQ(v.size(), 6u);
  const char* const names[] = {"bn/scale", "bn/shift", "bn/running_mean", "bn/running_variance"};
  using Kind = Variable::Kind;
  const Kind kinds[] = {Kind::kScale, Kind::kShift, Kind::kStatistic, Kind::kStatistic};
  const float initial[] = {1, 0, 0, 1};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(v[i].name, names[i]);
    EXPECT_EQ(v[i].kind, kinds[i]);
    EXPECT_EQ(v[i].ShapeString(), "[3]");
    EXPECT_EQ(v[i].initializer.kind, Initializer::Kind::kConstant);
    EXPECT_EQ(v[i].initializer.value, initial[i]);
    EXPECT_EQ(v[i].statistic_momentum, kinds[i] == Kind::kStatistic ? 0.25f : 0.0f);
    EXPECT_EQ(v[i].weight_decay.has_value(), kinds[i] == Kind::kStatistic);
  }
  EXPECT_EQ(v[1].learning_rate_multiplier, 2);
  EXPECT_EQ(graph.layout().parameter_count(), 6 + 4 * 189 + 4);
  EXPECT_TRUE(graph.layers()[0].has_variables());
}

TEST(Graph, FunctionsOfAnElementKeepTheShapeAndHaveTheirSettings) {
  const Graph graph = Build(std::string(R"(
    layer { name: "g" gelu {} }
    layer { name: "t" gelu { approximate: TANH } }
    layer { name: "l" leaky_relu {} }
    layer { name: "m" leaky_relu { slope: 0.5 } }
    layer { name: "s" silu {} } layer { name: "i" sigmoid {} } layer { name: "h" tanh {} })") +
                            kEnd);
  const char* const numbers[] = {"tanh false", "tanh true", "slope 0.01", "slope 0.5", "", "", ""};
  for (size_t i = 0; i < 7; ++i) {
    const Layer& layer = graph.layers()[i];
    EXPECT_EQ(NumbersOf(layer.spec), numbers[i]);
    EXPECT_EQ(layer.output_shape, layer.input_shape);
    EXPECT_FALSE(layer.has_variables());
  }
}

// As in Keras's habit, whose losses take probabilities.
TEST(Graph, ALossOfLogitsRefusesProbabilities) {
  const auto error = [](const std::string& layers, const std::string& loss) {
    return ErrorOf(R"(layer { name: "fc" dense { units: 4 } })" + layers +
                   "layer { name: \"loss\" " + loss + " {} }");
  };
  const std::string soft = R"(layer { name: "p" softmax {} })";
  const std::string both = soft + R"(layer { name: "q" input: "fc" sigmoid {} })";
  EXPECT_EQ(
      error(soft, "softmax_cross_entropy"),
      "layer \"loss\" (softmax_cross_entropy): expected logits, because this loss applies the "
      "softmax itself, got the probabilities of layer \"p\" (softmax), which would make "
      "training slow and inaccurate: remove that layer");
  EXPECT_THAT(error(R"(layer { name: "s" sigmoid {} })", "sigmoid_cross_entropy"),
              AllOf(HasSubstr("applies the sigmoid itself"), HasSubstr("\"s\" (sigmoid)")));
  for (const char* after : {"flatten {}", "dropout { rate: 0.5 }", "global_avg_pool {}",
                            R"(input: ["p", "p"] add {})"}) {
    EXPECT_THAT(error(soft + "layer { name: \"x\" " + after + " }", "softmax_cross_entropy"),
                HasSubstr("\"p\" (softmax)"));
  }
  EXPECT_THAT(
      error(both + R"(layer { name: "x" input: ["p", "q"] concat {} })", "sigmoid_cross_entropy"),
      HasSubstr("\"q\" (sigmoid)"));
  EXPECT_EQ(error(soft, "mean_squared_error"), "no error");
  EXPECT_EQ(
      error(soft + R"(layer { name: "x" input: ["p", "fc"] add {} })", "softmax_cross_entropy"),
      "no error");
  EXPECT_EQ(error(soft + R"(layer { name: "x" dense { units: 4 } })", "softmax_cross_entropy"),
            "no error");
}

TEST(Graph, ReflectPadAddsFewerPixelsThanThereAre) {
  const Graph graph =
      Build(std::string(R"(layer { name: "p" reflect_pad { pad: [2, 3] } })") + kEnd, {3, 4, 3});
  EXPECT_EQ(graph.layers()[0].output_shape, (Shape{7, 10, 3}));
  EXPECT_EQ(NumbersOf(graph.layers()[0].spec), "pad 2x3");
  EXPECT_EQ(
      ErrorOf(std::string(R"(layer { name: "p" reflect_pad { pad: 7 } })") + kEnd),
      "layer \"p\" (reflect_pad): expected fewer rows and columns than the input, 9x7x3, has, "
      "got pad: [7, 7]");
}

TEST(Graph, GroupNormHasScaleAndShiftOfEachChannel) {
  const Graph graph = Build(std::string(R"(
    layer { name: "g" group_norm { groups: 3 epsilon: 0.5 scale { learning_rate_multiplier: 0 } } }
    layer { name: "l" layer_norm {} })") +
                            kEnd);
  const char* const names[] = {"g/scale", "g/shift", "l/scale", "l/shift"};
  using Kind = Variable::Kind;
  for (size_t i = 0; i < 4; ++i) {
    const Variable& variable = graph.variables()[i];
    EXPECT_EQ(variable.name, names[i]);
    EXPECT_EQ(variable.kind, i % 2 == 0 ? Kind::kScale : Kind::kShift);
    EXPECT_EQ(variable.ShapeString(), "[3]");
    EXPECT_EQ(variable.initializer.value, i % 2 == 0 ? 1 : 0);
    EXPECT_FALSE(variable.weight_decay.has_value());
  }
  EXPECT_EQ(graph.variables()[0].learning_rate_multiplier, 0);
  EXPECT_EQ(NumbersOf(graph.layers()[0].spec), "groups 3 epsilon 0.5 per_pixel false");
  EXPECT_EQ(NumbersOf(graph.layers()[1].spec), "groups 1 epsilon 1e-05 per_pixel true");
  EXPECT_EQ(ErrorOf(std::string(R"(layer { name: "g" group_norm { groups: 2 } })") + kEnd),
            "layer \"g\" (group_norm): 3 channels cannot be split into 2 equal groups");
  // Groups of one value.
  for (const char* const norm : {"group_norm { groups: 3 }", "layer_norm {}"}) {
    const std::string row = std::string(R"(layer { name: "p" global_avg_pool {} })") +
                            R"(layer { name: "d" dense { units: )" + (norm[0] == 'g' ? "3" : "1") +
                            R"( } } layer { name: "n" )" + norm + " }";
    EXPECT_THAT(ErrorOf(row + kEnd), HasSubstr("\"n\"")) << norm;
  }
}

TEST(Graph, FrozenLayersNeitherLearnNorFollowTheData) {
  const std::string layers = R"(
      layer { name: "a/conv" conv2d { filters: 2 kernel: 1 } }
      layer { name: "a/bn" batch_norm {} }
      layer { name: "out" dense { units: 2 } }
      layer { name: "loss" softmax_cross_entropy {} } )";
  const auto build = [&](const std::string& freeze) {
    return Build(layers + "freeze: " + freeze, {2, 2, 1});
  };
  const Graph graph = build("\"a/*\"");
  for (const Variable& variable : graph.variables()) {
    const bool learns = variable.name.starts_with("out");
    EXPECT_EQ(variable.learning_rate_multiplier, learns) << variable.name;
    EXPECT_EQ(variable.statistic_momentum, 0) << variable.name;
  }
  EXPECT_NE(graph.layout().hash(), build("\"a/conv\"").layout().hash());
  EXPECT_NE(build("\"a/conv\"").variables().back().learning_rate_multiplier, 0);
  for (const char* wrong : {"\"a/\"", "\"b*\"", "\"loss\"", "\"\"", "\"*\""}) {
    EXPECT_THAT(ErrorOf(layers + "freeze: " + wrong), HasSubstr("model.freeze")) << wrong;
  }
}

TEST(Graph, HashTellsGraphsApart) {
  const std::string base = R"(layer { name: "c" conv2d { filters: 8 kernel: 3 padding: SAME } })";
  const uint64_t hash = Build(base + kEnd).layout().hash();
  EXPECT_EQ(Build(base + kEnd).layout().hash(), hash);
  EXPECT_NE(Build(base + kEnd, {9, 9, 3}).layout().hash(), hash);
  EXPECT_NE(Build(base + R"( layer { name: "r" relu {} })" + kEnd).layout().hash(), hash);
  EXPECT_NE(
      Build(R"(layer { name: "c" conv2d { filters: 8 kernel: 3 padding: EXPLICIT pad: 2 } })" +
            std::string(kEnd))
          .layout()
          .hash(),
      hash);
  const auto sum = [](const char* inputs) {
    return Build(std::string(R"(layer { name: "a" relu {} } layer { name: "b" relu6 {} }
                                layer { name: "sum" input: )") +
                 inputs + " add {} }" + kEnd)
        .layout()
        .hash();
  };
  EXPECT_NE(sum(R"(["a", "b"])"), sum(R"(["b", "a"])"));
}

}  // namespace graph_test
}  // namespace muster
