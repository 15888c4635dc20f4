#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/process.h"
#include "common/base/program_options.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/graph/probabilities.h"
#include "common/link/wire_type.h"
#include "common/model/load_weights.h"
#include "proto/config.pb.h"
#include "worker/commands.h"
#include "worker/data/dataset.h"
#include "worker/data/image_folder.h"
#include "worker/data/npz_data.h"
#include "worker/device.h"
#include "worker/nn/tower.h"
#include "worker/run_command.h"
#include "worker/stop_signals.h"
#include "worker/trainer/predict.h"
#include "worker/trainer/worker_memory.h"

namespace muster {
namespace {

struct AnswerArguments {
  std::string config, weights;
  uint32_t rank = 0;
  std::string samples, images;
  bool training_set = false, validation_set = false;
  uint32_t mistakes = 0;
};

// The config for describe-gpu without --config.
constexpr const char* kSmallJob = R"(
  run { epochs: 1 global_batch: 8 }
  data { format: SYNTHETIC synthetic { height: 8 width: 8 channels: 1 classes: 10 train_samples: 8 test_samples: 8 } }
  model {
    layer { name: "flat" flatten {} }
    layer { name: "product" dense { units: 10 } }
    layer { name: "loss" softmax_cross_entropy {} }
  }
  optimizer { type: SGD }
  learning_rate { base: 0.1 }
)";
constexpr int64_t kTestedSamples = 8;

double Resident() { return static_cast<double>(ResidentBytes().value_or(0)); }

Datasets OpenIfThere(const config::Config& config) {
  try {
    return OpenDatasets(config.data(), config.run().seed());
  } catch (const Error&) {
    return {};  // a run would report the error; the sizes can be computed without the data
  }
}

void PrintLine(const nlohmann::json& line) {
  fmt::print("{}\n", JsonText(line));
  std::fflush(stdout);
}

// `name` identifies the image in errors.
void PrintLogits(nlohmann::json line, const std::string& name, std::span<const float> logits) {
  if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
    throw Error(ExitCode::kNonfinite, "the network's outputs for {} are not finite", name);
  }
  line["logits"] = std::vector<float>(logits.begin(), logits.end());
  PrintLine(line);
}

// Reads the weights and rounds them if the run sends 16-bit weights, so that they equal a worker's.
Arena ReadWeights(const config::Config& config, const Graph& graph, const std::string& path) {
  Arena weights(graph.arena_floats());
  const SafetensorsReader file(path);
  RequireWhole(file);
  (void)LoadWeights(file, graph, {}, weights.floats());
  RoundToWire(WireTypeOf(config.cluster()), weights.floats());
  return weights;
}

void Predict(const config::Config& config, const std::string& weights_path, const Dataset& set,
             const std::vector<int64_t>& samples, const OnPrediction& on_prediction) {
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const Arena weights = ReadWeights(config, graph, weights_path);
  const WorkerDevice device = MakeWorkerDevice(config, 0);
  PredictSamples(config, graph, *device.backend, weights.floats(), set, samples, on_prediction);
}

void PrintMemory(const AnswerArguments& arguments) {
  const config::Config config = ReadResolvedConfig(arguments.config);
  if (arguments.rank >= config.cluster().workers()) {
    throw Error(ExitCode::kUsage, "--rank {}: expected 0 to {} (cluster.workers is {})",
                arguments.rank, config.cluster().workers() - 1, config.cluster().workers());
  }
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const double before = Resident();
  const Datasets data = OpenIfThere(config);
  const double of_data = Resident() - before;
  const WorkerDevice device = MakeWorkerDevice(config, arguments.rank);
  Tower tower(graph, *device.backend, config.run().seed(), ClassWeights(config.data()),
              config.evaluation().flip());
  std::vector<MemoryRow> rows =
      WorkerMemory(config, graph, data, arguments.rank, *device.backend, tower);
  rows.push_back({"code, libraries, kernels", Resident() - of_data});
  constexpr const char* kHolders[] = {"process", "server", "host", "card"};
  for (const MemoryRow& row : rows) {
    fmt::print("{{\"what\":\"{}\",\"bytes\":{:.0f},\"holder\":\"{}\"}}\n", row.what, row.bytes,
               kHolders[static_cast<int>(row.holder)]);
  }
}

void PrintPredictions(const AnswerArguments& arguments) {
  const config::Config config = ReadResolvedConfig(arguments.config);
  const auto open = arguments.training_set ? OpenDatasets : OpenEvaluatedSet;
  const Datasets data = open(config.data(), config.run().seed());
  const Dataset& set = arguments.training_set ? *data.train : EvaluatedSetOf(data);
  const std::vector<int64_t> samples = ParseNumberList("--samples", arguments.samples, set.size());
  Predict(config, arguments.weights, set, samples,
          [](int64_t sample, int32_t label, std::span<const float> logits) {
            PrintLogits({{"sample", sample}, {"label", label}}, fmt::format("sample {}", sample),
                        logits);
          });
}

std::vector<int64_t> AllOf(int64_t count) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void PrintArrayPredictions(const config::Config& config, const std::string& weights,
                           const std::string& path) {
  const std::shared_ptr<const Dataset> set = OpenNpzSamples(path, config.data());
  Predict(config, weights, *set, AllOf(set->size()),
          [&](int64_t sample, int32_t /*label*/, std::span<const float> logits) {
            const std::string name = fmt::format("{}[{}]", path, sample);
            PrintLogits({{"image", name}}, name, logits);
          });
}

void PrintImagePredictions(const AnswerArguments& arguments) {
  const config::Config config = ReadResolvedConfig(arguments.config);
  std::vector<std::string> paths;
  std::ifstream list = ReadPlainFile(arguments.images);
  for (std::string path; std::getline(list, path, '\0');) paths.push_back(path);
  if (config.data().format() == config::Data::NPZ) {
    for (const std::string& path : paths) PrintArrayPredictions(config, arguments.weights, path);
    return;
  }
  const LoosePhotos photos = OpenLoosePhotos(paths, config.data());
  Predict(config, arguments.weights, *photos.set, AllOf(photos.set->size()),
          [&](int64_t sample, int32_t /*label*/, std::span<const float> logits) {
            const std::string& path = photos.paths[static_cast<size_t>(sample)];
            const std::string& trouble = (*photos.troubles)[static_cast<size_t>(sample)];
            if (trouble.empty()) return PrintLogits({{"image", path}}, path, logits);
            PrintLine({{"image", path}, {"error", trouble}});
          });
}

// The `most` samples of the block that the network takes for another class with the highest
// probability.
nlohmann::json MistakesIn(const PreparedBatch& batch, std::span<const int32_t> predicted,
                          std::span<const float> logits, const Graph& graph, size_t most) {
  const auto outputs = static_cast<size_t>(graph.outputs());
  std::vector<SureMistake> mistakes;
  for (size_t i = 0; most > 0 && i < predicted.size(); ++i) {
    if (predicted[i] == batch.labels[i]) continue;
    const std::vector<float> each = OutputOfEachClass(graph, logits.subspan(i * outputs, outputs));
    const auto place = static_cast<size_t>(predicted[i]);
    if (place >= each.size()) continue;
    const double probability = Probabilities(each, ProbabilitiesOf(graph))[place];
    if (!std::isfinite(probability)) continue;  // JSON has no other numbers
    mistakes.push_back({batch.sample_ids[i], batch.labels[i], predicted[i], probability});
  }
  KeepSurest(most, mistakes);
  nlohmann::json all = nlohmann::json::array();
  for (const SureMistake& one : mistakes) {
    all.push_back({{"sample", one.sample},
                   {"label", one.label},
                   {"predicted", one.predicted},
                   {"probability", one.probability}});
  }
  return all;
}

void PrintEvaluation(const AnswerArguments& arguments) {
  const config::Config config = ReadResolvedConfig(arguments.config);
  const unsigned each = config.worker().threads() + config.data().prefetch_threads();
  RequireThreads("an evaluation", config.cluster().workers() * each);
  const auto open = arguments.validation_set ? OpenDatasets : OpenEvaluatedSet;
  const Datasets data = open(config.data(), config.run().seed());
  if (arguments.validation_set && SizeOf(data.validation) == 0) {
    throw Error(ExitCode::kUsage, "--validation-set: the data has no validation set");
  }
  const Dataset& set = arguments.validation_set ? *data.validation : EvaluatedSetOf(data);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const Arena weights = ReadWeights(config, graph, arguments.weights);
  const auto make_backend = [&] {
    WorkerDevice device = MakeWorkerDevice(config, 0);
    TestDevice(config, graph, kTestedSamples, device);
    return std::move(device.backend);
  };
  EvaluateBlocks(
      config, graph, make_backend, weights.floats(), set, arguments.mistakes > 0,
      [&](const PreparedBatch& batch, const LossSums& sums, std::span<const int32_t> predicted,
          std::span<const float> logits) {
        const bool finite = std::isfinite(sums.loss);  // JSON has no other numbers
        const nlohmann::json loss =
            finite ? nlohmann::json(sums.loss) : nlohmann::json(fmt::format("{}", sums.loss));
        PrintLine({{"block", batch.index},
                   {"samples", batch.count},
                   {"loss", loss},
                   {"correct", sums.correct},
                   {"metrics", sums.metrics},
                   {"labels", std::vector(batch.labels, batch.labels + predicted.size())},
                   {"predicted", std::vector(predicted.begin(), predicted.end())},
                   {"mistakes", MistakesIn(batch, predicted, logits, graph, arguments.mistakes)}});
      });
}

void PrintGpu(const AnswerArguments& arguments) {
  config::Config config = arguments.config.empty() ? ParseConfigText(kSmallJob, "describe-gpu")
                                                   : ReadResolvedConfig(arguments.config);
  config::Worker& worker = *config.mutable_worker();
  worker.set_backend(config::Worker::CUDA);
  worker.set_soft_placement(false);
  worker.set_workers_per_gpu(1);
  ResolveForMachine(config, AvailableCores());
  const WorkerDevice device = MakeWorkerDevice(config, 0);
  TestDevice(config, BuildGraph(config.model(), InputShape(config.data())), kTestedSamples, device);
  PrintLine({{"arithmetic", device.arithmetic}});
}

int Answer(const std::function<void()>& print) {
  return RunCommand("worker", [&] {
    SayWhenStopped("muster-worker");
    print();
  });
}

constexpr const char* kConfigText = "The resolved config from the run directory";
constexpr const char* kWeightsText = "The safetensors file with the weights";

}  // namespace

int MemoryCommand(int argc, char** argv) {
  AnswerArguments arguments;
  ProgramOptions program{"Prints a worker's memory use, a line of JSON for each part."};
  program.Add("--config", arguments.config, kConfigText).Required();
  program.Add("--rank", arguments.rank, "The worker's number, from 0").Required();
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  return Answer([&] { PrintMemory(arguments); });
}

int PredictCommand(int argc, char** argv) {
  AnswerArguments arguments;
  ProgramOptions program{"Prints the network's outputs, a line of JSON for each sample or photo."};
  program.Add("--config", arguments.config, kConfigText).Required();
  program.Add("--weights", arguments.weights, kWeightsText).Required();
  program.Add("--samples", arguments.samples, "Samples of the test set: 0-9,17")
      .RequiredUnless(program.Add("--images", arguments.images,
                                  "A file with the paths of photos, each ended by a zero byte"));
  program.AddFlag("--training-set", arguments.training_set,
                  "Samples of the training set, prepared as in an evaluation");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  return Answer([&] {
    arguments.images.empty() ? PrintPredictions(arguments) : PrintImagePredictions(arguments);
  });
}

int EvaluateCommand(int argc, char** argv) {
  AnswerArguments arguments;
  ProgramOptions program{
      "Evaluates the test set, or else the validation set, in cluster.workers threads, and prints\n"
      "a line of JSON for each block."};
  program.Add("--config", arguments.config, kConfigText).Required();
  program.Add("--weights", arguments.weights, kWeightsText).Required();
  program.AddFlag("--validation-set", arguments.validation_set,
                  "The validation set, even if there is a test set");
  program.Add("--mistakes", arguments.mistakes,
              "Number of mistakes to name per block: those with the highest probabilities");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  return Answer([&] { PrintEvaluation(arguments); });
}

int DescribeGpuCommand(int argc, char** argv) {
  AnswerArguments arguments;
  ProgramOptions program{
      "Compares the GPU's results with the CPU's, and prints the GPU and the versions of CUDA,\n"
      "cuBLAS and cuDNN as a line of JSON."};
  program.Add("--config", arguments.config, "A resolved config, whose layers are compared");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  return Answer([&] { PrintGpu(arguments); });
}

}  // namespace muster
