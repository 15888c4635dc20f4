// Dumps the initial weights and the batches of a run as plain arrays, so that another library can
// repeat the run:
//
//   dump_training CONFIG DIR [--data DATA] [--steps N] [--set path.to.key=value …]
//
// writes these files to DIR, using the same functions as server and workers:
//   weights.f32     the initial weights: the graph's parameter buffer, little-endian floats
//   images.f32      the preprocessed images of steps 0 … N-1, in batch order:
//                   [samples, height, width, channels]
//   labels.i32      their labels
//   training.json   input: image shape;  loss: kind of the last layer
//                   layers: name, kind;  variables: name, layer, shape, offset and count in floats,
//                   weight_decay or null
//                   steps: for each step, the number of samples of each slice
//                   samples: for each step, the indices in the training set
//
// bench/compare_curves.py trains PyTorch with these files.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/program_options.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/graph/graph.h"
#include "common/plan/step_plan.h"
#include "ps/update/initializer.h"
#include "worker/data/dataset.h"
#include "worker/data/pipeline.h"

namespace muster::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string config, directory;
  std::vector<std::string> settings;
  int64_t steps = 200;
};

constexpr double kBatchDeadlineSeconds = 60;

// An output file. Throws an Error unless everything is written.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path)
      : path_(path), out_(path, std::ios::binary | std::ios::trunc) {
    Check();
  }
  void Write(const void* data, size_t bytes) {
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    Check();
  }
  void Close() {
    out_.close();
    Check();
  }

 private:
  void Check() const {
    if (!out_) {
      throw Error(ExitCode::kFailure,
                  fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
    }
  }
  std::string path_;
  std::ofstream out_;
};

Json Describe(const Graph& graph) {
  Json json;
  const Shape& input = graph.input_shape();
  json["input"] = {input.height, input.width, input.channels};
  json["loss"] = graph.layers().back().kind;
  for (const Layer& layer : graph.layers()) {
    json["layers"].push_back({{"name", layer.name}, {"kind", layer.kind}});
  }
  for (const Variable& variable : graph.variables()) {
    Json entry = {{"name", variable.name},   {"layer", variable.layer},
                  {"shape", variable.shape}, {"offset", variable.offset},
                  {"count", variable.count}, {"weight_decay", nullptr}};
    if (variable.weight_decay) entry["weight_decay"] = *variable.weight_decay;
    json["variables"].push_back(entry);
  }
  return json;
}

StepPlan PlanOf(const config::Config& config, int64_t train_samples, int64_t steps) {
  StepPlan plan = PlanSteps(config, train_samples);
  plan.total_steps = steps;
  return plan;
}

void DumpBatches(const config::Config& config, const Graph& graph, const Options& options,
                 Json& json) {
  const Datasets data = OpenDatasets(config.data(), config.run().seed());
  TrainPipelineOptions pipeline_options;
  pipeline_options.plan = PlanOf(config, data.train->size(), options.steps);
  pipeline_options.slices = {{0, pipeline_options.plan.slices}};
  pipeline_options.seed = config.run().seed();
  pipeline_options.data = config.data();
  const auto pipeline = MakeTrainPipeline(*data.train, pipeline_options);
  OutputFile images(options.directory + "/images.f32"), labels(options.directory + "/labels.i32");
  const auto image_floats = static_cast<size_t>(graph.input_shape().elements());
  for (int64_t step = 0; step < options.steps; ++step) {
    Json counts = Json::array(), samples = Json::array();
    for (int64_t slice = 0; slice < pipeline_options.plan.slices; ++slice) {
      const PreparedBatch& batch = pipeline->Next(kBatchDeadlineSeconds);
      const auto count = static_cast<size_t>(batch.count);
      counts.push_back(count);
      for (size_t i = 0; i < count; ++i) samples.push_back(batch.sample_ids[i]);
      images.Write(batch.images, count * image_floats * sizeof(float));
      labels.Write(batch.labels, count * sizeof(int32_t));
    }
    json["steps"].push_back(std::move(counts));
    json["samples"].push_back(std::move(samples));
  }
  images.Close();
  labels.Close();
}

void Dump(const Options& options) {
  std::vector<Setting> settings;
  for (const std::string& text : options.settings) settings.push_back(ParseSetting(text));
  config::Config config = LoadConfig(options.config, settings);
  ResolveConfig(config, AvailableCores());
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  std::filesystem::create_directories(options.directory);

  Arena weights(graph.arena_floats());
  InitializeWeights(graph.layout(), config.run().seed(), weights.floats());
  OutputFile weights_file(options.directory + "/weights.f32");
  weights_file.Write(weights.floats().data(), weights.floats().size_bytes());
  weights_file.Close();

  Json json = Describe(graph);
  DumpBatches(config, graph, options, json);
  const std::string text = JsonText(json) + "\n";
  OutputFile description(options.directory + "/training.json");
  description.Write(text.data(), text.size());
  description.Close();
}

int Main(int argc, char** argv) {
  Options options;
  std::string data;
  ProgramOptions program{
      "Writes initial weights and the batches of the first steps of a run as plain arrays."};
  program.Add("config", options.config, "Config file").Required();
  program.Add("directory", options.directory, "Output folder").Required();
  program.Add("--data", data, "Folder of the data set; overrides data.dir");
  program.Add("--steps", options.steps, "Steps to write").InRange(1, 1000000000);
  program.Add("--set", options.settings, "Override a setting: path.to.key=value; repeatable");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (!data.empty()) options.settings.push_back("data.dir=" + data);
  try {
    Dump(options);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "dump_training: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dump_training: %s\n", error.what());
    return static_cast<int>(ExitCode::kFailure);
  }
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main(argc, argv); }
