// Model files: written values are read back, and errors name what does not match.
#include <gmock/gmock.h>

#include <algorithm>

#include "common/base/error.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/model/load_weights.h"
#include "common/model/write_model.h"
#include "tests/data/temp_dir.h"
#include "tests/model/small_graph.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

const char kLayers[] = R"(
    layer { name: "stem/conv" conv2d { filters: 4 kernel: 3 } }
    layer { name: "stem/norm" batch_norm {} }
    layer { name: "fc" dense { units: 5 } })";
constexpr Shape kInput{6, 5, 3};

class ModelFileTest : public ::testing::Test {
 protected:
  // Writes kLayers with counted values.
  void Write(const Metadata& metadata = {}) {
    const Graph graph = SmallGraph(kLayers, kInput);
    WriteModel(path_, graph, Counted(graph), /*updates=*/77, metadata);
  }
  std::string ErrorOf(const Graph& graph, const LoadOptions& options = {}) {
    std::vector<float> arena(graph.arena_floats());
    try {
      LoadWeights(SafetensorsReader(path_), graph, options, arena);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_TRUE(std::ranges::all_of(arena, [](float x) { return x == 0; })) << "partly read";
      return error.what();
    }
    return "no error";
  }

  const TempDir dir_;
  const std::string path_ = (dir_ / "model.safetensors").string();
};

TEST_F(ModelFileTest, WhatIsWrittenIsTakenBack) {
  Write();
  const Graph graph = SmallGraph(kLayers, kInput);
  std::vector<float> arena(graph.arena_floats());
  const SafetensorsReader file(path_);
  const WeightsMatch loaded = LoadWeights(file, graph, {}, arena);
  EXPECT_EQ(arena, Counted(graph));
  EXPECT_EQ(loaded.variables.size(), graph.variables().size());
  EXPECT_THAT(loaded.skipped, SizeIs(0));
  const StoredTensor* const counter = file.header().Find("stem.norm.num_batches_tracked");
  ASSERT_NE(counter, nullptr);
  EXPECT_THAT(counter->shape, SizeIs(0));
  std::vector<int64_t> updates(1);
  file.ReadIntegers(*counter, updates);
  EXPECT_THAT(updates, ElementsAre(77));
}

TEST_F(ModelFileTest, EverythingThatDoesNotFitIsNamed) {
  Write();
  const std::string error = ErrorOf(SmallGraph(R"(
      layer { name: "stem/conv" conv2d { filters: 4 kernel: 5 padding: SAME } }
      layer { name: "head" dense { units: 5 use_bias: false } })",
                                               kInput));
  EXPECT_THAT(error,
              AllOf(HasSubstr(path_ + ": does not fit the network"),
                    HasSubstr("stem.conv.weight is [4,3,3,3] in the file, and [4,3,5,5] in "
                              "the network"),
                    HasSubstr("head.weight [5,120] is missing"),
                    HasSubstr("stem.norm.running_mean [4] is in the file, but not in the"),
                    HasSubstr("fc.weight [5,48] is in the file"), HasSubstr("--skip-mismatched")));
  EXPECT_THAT(error, Not(HasSubstr("num_batches_tracked")));
}

TEST_F(ModelFileTest, ANewHeadIsSkippedOnRequest) {
  Write();
  const Graph graph = SmallGraph(R"(
      layer { name: "stem/conv" conv2d { filters: 4 kernel: 3 } }
      layer { name: "stem/norm" batch_norm {} }
      layer { name: "fc" dense { units: 9 } })",
                                 kInput);
  std::vector<float> arena(graph.arena_floats(), -1);
  const WeightsMatch loaded =
      LoadWeights(SafetensorsReader(path_), graph, {.skip_mismatched = true}, arena);
  EXPECT_EQ(loaded.variables.size(), 6u);
  EXPECT_THAT(loaded.skipped,
              ElementsAre("fc.weight is [5,48] in the file, and [9,48] in the network",
                          "fc.bias is [5] in the file, and [9] in the network"));
  for (const Variable& variable : graph.variables()) {
    EXPECT_EQ(arena[variable.offset], variable.name.starts_with("fc") ? -1 : 1) << variable.name;
  }
}

TEST_F(ModelFileTest, AFileOfAnotherNetworkIsRefusedInAnyCase) {
  Write();
  const Graph other = SmallGraph(R"(layer { name: "x" dense { units: 5 } })", kInput);
  for (const bool skip : {false, true}) {
    EXPECT_THAT(ErrorOf(other, {.skip_mismatched = skip}),
                AllOf(HasSubstr("it has none of the network's variables"), HasSubstr("--map")));
  }
}

TEST_F(ModelFileTest, TheSameNamesInOtherShapesAreNamedWithBoth) {
  Write();
  const Graph wider = SmallGraph(R"(
      layer { name: "fc" dense { units: 9 } })",
                                 kInput);
  for (const bool skip : {false, true}) {
    EXPECT_THAT(ErrorOf(wider, {.skip_mismatched = skip}),
                AllOf(HasSubstr("none with the network's shape"),
                      HasSubstr("fc.weight is [5,48] in the file, and [9,90] in the network"),
                      HasSubstr("fc.bias is [5] in the file, and [9] in the network"),
                      Not(HasSubstr("--map"))));
  }
}

TEST_F(ModelFileTest, AKnownPrefixOfAllNamesIsNamedAndRemoved) {
  const auto network = [](const std::string& prefix) {
    return SmallGraph(fmt::format(R"(layer {{ name: "{0}fc" dense {{ units: 5 }} }}
                                     layer {{ name: "{0}last" dense {{ units: 2 }} }})",
                                  prefix),
                      kInput);
  };
  const Graph graph = network("");
  for (const auto& [prefix, known] : {std::pair{"module._orig_mod.", true}, {"net.", false}}) {
    const Graph wrapped = network(prefix);
    WriteModel(path_, wrapped, Counted(wrapped), 0, {});
    const std::string hint = fmt::format("--strip-prefix {}`", prefix);
    EXPECT_EQ(ErrorOf(graph, {}).find(hint) != std::string::npos, known);
    std::vector<float> arena(graph.arena_floats());
    EXPECT_EQ(LoadWeights(SafetensorsReader(path_), graph, {.prefix = prefix}, arena).skipped,
              std::vector<std::string>());
    EXPECT_EQ(arena, Counted(graph));
  }
}

TEST_F(ModelFileTest, OtherNames) {
  Write();
  const Graph graph = SmallGraph(R"(
      layer { name: "first" conv2d { filters: 4 kernel: 3 } }
      layer { name: "first/norm" batch_norm {} }
      layer { name: "last" dense { units: 5 use_bias: false } })",
                                 kInput);
  std::vector<float> arena(graph.arena_floats());
  const TensorNames names = {
      {"stem.conv", "first"}, {"stem", "first"}, {"fc", "last"}, {"fc.bias", ""}};
  const WeightsMatch loaded = LoadWeights(SafetensorsReader(path_), graph, {.names = names}, arena);
  EXPECT_EQ(arena, Counted(graph));
  EXPECT_EQ(loaded.variables.size(), graph.variables().size());
  EXPECT_THAT(ErrorOf(graph, {.names = {{"stem.norm.weight", "x"}, {"stem.norm.bias", "x"}}}),
              HasSubstr("would both become x"));
}

TEST_F(ModelFileTest, MetadataSaysWhatItIs) {
  const std::string config_path = (dir_ / "config.txtpb").string();
  WriteBytes(config_path, std::string(R"(
      run { steps: 9 global_batch: 16 slices: 1 }
      data { format: SYNTHETIC synthetic { height: 6 width: 7 classes: 5 }
             preprocess { crop_height: 6 crop_width: 5 standardize: true }
             class_names: ["a", "b", "c", "d", "e"] }
      model { name: "tiny")") +
                              kLayers + R"( layer { name: "loss" softmax_cross_entropy {} } }
      learning_rate { base: 0.1 })");
  config::Config config = LoadConfig(config_path, {});
  ResolveConfig(config, 1);
  Write(
      ModelMetadata(config, SmallGraph(kLayers, kInput),
                    {.step = 1234, .average = true, .weights_hash = 0xab, .test_accuracy = 0.25}));
  const SafetensorsReader file(path_);
  const Metadata& metadata = file.header().metadata;
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("model"), "tiny");
  EXPECT_EQ(metadata.at("weights_hash"), "00000000000000ab");
  EXPECT_EQ(metadata.at("input"), "[3,6,5]");
  EXPECT_EQ(metadata.at("flatten"), "CHW");
  EXPECT_EQ(metadata.at("test_accuracy"), "0.25");
  EXPECT_FALSE(metadata.contains("test_loss"));
  EXPECT_THAT(metadata.at("preprocessing"), HasSubstr(R"([{"center_crop":[6,5],"of":[6,7]})"));
  config::Preprocess& steps = *config.mutable_data()->mutable_preprocess();
  steps.set_standardize(false);
  for (const double mean : {1.0, 2.0, 3.0}) steps.add_mean(mean);
  EXPECT_THAT(ModelMetadata(config, SmallGraph(kLayers, kInput), {}).at("preprocessing"),
              AllOf(HasSubstr("subtract"), Not(HasSubstr("255"))));
  steps.clear_mean();
  steps.set_standardize(true);
  EXPECT_EQ(StepOf(metadata), 1234);
  EXPECT_TRUE(IsAverage(metadata));
  EXPECT_EQ(metadata.at("class_names"), R"(["a","b","c","d","e"])");
  const auto read = ConfigOf(metadata, path_);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(ConfigText(*read), ConfigText(config));
  // A file of a later version with an unknown setting.
  EXPECT_THAT(
      ([&] {
        (void)ConfigOf({{"config", "run { later: 1 }"}, {"muster_version", "9.8.7"}}, path_);
      }),
      ThrowsMessage<Error>(AllOf(
          HasSubstr("unknown key"),
          HasSubstr(fmt::format("it was written by Muster 9.8.7, but this is {}", kVersion)))));
  // A file of another program.
  EXPECT_FALSE(ConfigOf({}, path_).has_value());
  EXPECT_FALSE(StepOf({{"step", "ten"}}).has_value());
}

}  // namespace
}  // namespace muster::testing
