// Writes a network's results for test images, for comparison with another library:
//
//   dump_logits CONFIG DIR [--weights FILE] [--images N] [--data DATA] [--set path.to.key=value …]
//
// reads the weights from FILE, or makes some up, including batch norm statistics, and writes them
// to DIR/model.safetensors as a run does. DIR/images.safetensors has images [N, height, width,
// channels], preprocessed as in evaluation, their labels [N], and logits [N, classes].
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/base/program_options.h"
#include "common/base/random.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/load_weights.h"
#include "common/model/write_model.h"
#include "common/tensors/safetensors_writer.h"
#include "ps/update/initializer.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/data/dataset.h"
#include "worker/data/pipeline.h"
#include "worker/nn/tower.h"

namespace muster::testing {
namespace {

struct Options {
  std::string config, directory, weights;
  std::vector<std::string> settings;
  int64_t images = 8;
};

// The initial weights with changes of the size that training might make. All elements of biases and
// statistics differ from each other and from the initial ones.
void MakeUp(const Graph& graph, uint64_t seed, std::span<float> weights) {
  InitializeWeights(graph.layout(), seed, weights);
  for (const Variable& variable : graph.variables()) {
    const bool positive =
        variable.kind == Variable::Kind::kScale || variable.name.ends_with("running_variance");
    for (size_t i = variable.offset; i < variable.offset + variable.count; ++i) {
      const auto bits = RandomStream(seed, RandomPurpose::kSynthetic, 1, 2, i).Block(0);
      const float x = ToUniform(bits[0]);
      if (variable.kind == Variable::Kind::kWeights) {
        weights[i] += 0.02f * (x - 0.5f);
      } else {
        weights[i] = positive ? 0.5f + x : 0.2f * (x - 0.5f);
      }
    }
  }
}

struct Images {
  std::vector<float> pixels, logits;
  std::vector<int64_t> labels;
};

Images Run(const config::Config& config, const Graph& graph, int64_t count,
           std::span<const float> weights) {
  const Datasets data = OpenDatasets(config.data(), config.run().seed());
  count = std::min(count, EvaluatedSetOf(data).size());
  constexpr int64_t kBlock = 8;
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  const auto pipeline =
      MakeEvaluationPipeline(EvaluatedSetOf(data), config.data(), kBlock, {0, blocks});
  const auto backend = MakeCpuBackend(1);
  Tower tower(graph, *backend, config.run().seed());
  for (int64_t n = 1; n <= kBlock; ++n) tower.Plan(n, Mode::kInference);
  tower.Allocate();
  Images images;
  std::vector<float> logits(static_cast<size_t>(kBlock * graph.outputs()));
  for (int64_t left = count; left > 0;) {
    const PreparedBatch& batch = pipeline->Next(60);
    const int64_t n = std::min(batch.count, left);
    left -= n;
    LossSums sums;
    tower.Forward({.count = n,
                   .images = batch.images,
                   .labels = batch.labels,
                   .sample_ids = batch.sample_ids,
                   .logits = logits.data()},
                  Mode::kInference, weights, 1, nullptr, sums);
    images.pixels.insert(images.pixels.end(), batch.images,
                         batch.images + n * graph.input_shape().elements());
    images.labels.insert(images.labels.end(), batch.labels, batch.labels + n);
    images.logits.insert(images.logits.end(), logits.begin(),
                         logits.begin() + static_cast<std::ptrdiff_t>(n * graph.outputs()));
  }
  return images;
}

void Write(const std::string& path, const Graph& graph, const Images& images) {
  const auto count = static_cast<int64_t>(images.labels.size());
  const Shape& shape = graph.input_shape();
  SafetensorsWriter writer(
      path, LayOutSafetensors(
                {{.name = "labels", .type = TensorType::kI64, .shape = {count}},
                 {.name = "images", .shape = {count, shape.height, shape.width, shape.channels}},
                 {.name = "logits", .shape = {count, graph.outputs()}}},
                {}));
  writer.Write(std::as_bytes(std::span(images.labels)));
  writer.Write(std::as_bytes(std::span(images.pixels)));
  writer.Write(std::as_bytes(std::span(images.logits)));
  writer.Commit();
}

void Dump(const Options& options) {
  std::vector<Setting> settings;
  for (const std::string& text : options.settings) settings.push_back(ParseSetting(text));
  config::Config config = LoadConfig(options.config, settings);
  ResolveConfig(config, 1);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  std::filesystem::create_directories(options.directory);
  Arena weights(graph.arena_floats());
  if (options.weights.empty()) {
    MakeUp(graph, config.run().seed(), weights.floats());
    WriteModel(options.directory + "/model.safetensors", graph, weights.floats(), /*updates=*/1,
               ModelMetadata(config, graph, {.step = 1}));
  } else {
    LoadWeights(SafetensorsReader(options.weights), graph, {}, weights.floats());
  }
  Write(options.directory + "/images.safetensors", graph,
        Run(config, graph, options.images, weights.floats()));
}

int Main(int argc, char** argv) {
  Options options;
  std::string data;
  ProgramOptions program{"Writes what a network makes of test images."};
  program.Add("config", options.config, "Config file").Required();
  program.Add("directory", options.directory, "Where the files go").Required();
  program.Add("--weights", options.weights, "Safetensors file; default: made up");
  program.Add("--images", options.images, "How many").InRange(1, 1000000);
  program.Add("--data", data, "Folder of the data set; instead of data.dir");
  program.Add("--set", options.settings, "path.to.key=value; may be repeated");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (!data.empty()) options.settings.push_back("data.dir=" + data);
  try {
    Dump(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dump_logits: %s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) { return muster::testing::Main(argc, argv); }
