#include "cli/evaluate/evaluation_config.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "cli/job/job_cards.h"
#include "cli/process/json_program.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/config/hardware.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Batch norm cannot train on one sample.
constexpr int64_t kBatchPerWorker = 2;
// Long enough for a whole data set.
constexpr double kDeadlineSeconds = 24 * 3600;

config::Config RunConfig(const EvaluationSource& source, const OpenedModel& model) {
  if (!source.config_path.empty()) {
    std::vector<Setting> of_data;  // a folder of photos determines the classes
    std::ranges::copy_if(source.settings, std::back_inserter(of_data),
                         [](const Setting& setting) { return setting.path.starts_with("data."); });
    config::Config config = LoadConfig(source.config_path, of_data);
    if (MeasuresNormalization(config.data())) {
      throw Error(ExitCode::kUsage,
                  "{}: data.preprocess.measure_mean_stddev: expected the mean and stddev that the "
                  "weights were trained with; the run's config.txtpb has them",
                  source.config_path);
    }
    return config;
  }
  std::optional<config::Config> config = ConfigOf(model.file.header().metadata, model.shown);
  if (config) return *std::move(config);
  const fs::path path = model.shown;
  if (path.filename() == kTensorFile && IsCheckpoint(path.parent_path())) {
    throw Error(ExitCode::kUsage, "{}: is part of a checkpoint: give its folder, {}", model.shown,
                path.parent_path().string());
  }
  throw Error(ExitCode::kUsage,
              "{}: does not name its network and data: give its config (--config CONFIG)",
              model.shown);
}

// Keeps the settings of the network, the data, the workers, the wire format and each evaluation.
// The rest is the minimum of a valid config.
config::Config EvaluationConfig(const config::Config& run, const std::vector<Setting>& settings) {
  if (HasProgram(run)) {
    throw Error(ExitCode::kUsage, "the model of this run is only in its program, {}",
                run.worker().program(0));
  }
  config::Config config;
  *config.mutable_data() = run.data();
  config.mutable_data()->clear_prefetch_threads();  // of the run's machine
  *config.mutable_model() = run.model();
  *config.mutable_deadlines() = run.deadlines();
  config::Worker& worker = *config.mutable_worker();
  worker = run.worker();
  worker.clear_workers_per_gpu();
  if (!TypedDevices(settings).empty()) {  // replaces the run's devices
    worker.clear_backend();
    worker.clear_soft_placement();
  }
  if (ParseDevices(worker.devices()).WantsCards()) worker.set_devices("auto:1");  // one process
  config.mutable_run()->set_seed(run.run().seed());  // determines synthetic data
  config.mutable_run()->set_steps(1);
  config.mutable_run()->set_batch_per_worker(kBatchPerWorker);
  config.mutable_cluster()->set_wire_dtype(run.cluster().wire_dtype());
  config.mutable_optimizer()->set_type(config::Optimizer::SGD);
  config.mutable_learning_rate()->set_base(0);
  config.mutable_evaluation()->set_batch(run.evaluation().batch());
  config.mutable_evaluation()->set_flip(run.evaluation().flip());
  return config;
}

bool IsIn(const std::string& path, const std::string& message) {
  return path == message || path.starts_with(message + ".");
}

// Whether an evaluation depends on the setting. Most of data.preprocess only changes training
// samples.
bool AffectsEvaluation(const std::string& path) {
  constexpr const char* kPreprocess = "data.preprocess";
  if (path.starts_with(kPreprocess) && path != kPreprocess) {
    static const std::set<std::string> kOfEvaluations{
        "crop_height", "crop_width", "standardize", "resize", "padding", "mean", "stddev"};
    return kOfEvaluations.contains(path.substr(path.rfind('.') + 1));
  }
  if (path == "data.class_weights" || path == "worker.check_gradients") return false;
  if (path == "worker.cuda_graphs" || path == "worker.gpu_sums") return false;
  static const std::set<std::string> kOthers{"model_file",       "run.seed",
                                             "evaluation.batch", "evaluation.flip",
                                             "cluster.workers",  "cluster.wire_dtype"};
  return IsIn(path, "data") || IsIn(path, "model") || IsIn(path, "worker") ||
         kOthers.contains(path);
}

void RefuseTrainingSettings(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    if (AffectsEvaluation(setting.path)) continue;
    throw Error(ExitCode::kUsage,
                "{}: has no effect on an evaluation; expected a setting of data, model or worker "
                "that does not only concern training, or run.seed, evaluation.batch, "
                "evaluation.flip, cluster.workers or cluster.wire_dtype",
                setting.origin);
  }
}

bool HasSameData(const config::Config& a, const config::Config& b) {
  if (a.data().format() != b.data().format()) return false;
  if (!NeedsFiles(a.data())) return a.run().seed() == b.run().seed();
  std::error_code ignored;
  return a.data().dir() == b.data().dir() ||
         fs::equivalent(a.data().dir(), b.data().dir(), ignored);
}

}  // namespace

void RefuseTrainedSamples(const EvaluationSource& source, const OpenedModel& model,
                          const config::Config& config) {
  const double fraction = config.data().validation_fraction();
  if (fraction == 0 || !source.config_path.empty()) return;
  const auto trained = ConfigOf(model.file.header().metadata, model.shown);
  if (!trained || !HasSameData(*trained, config)) return;
  const double held_back = trained->data().validation_fraction();
  // A smaller share is a part of a larger one, if the seed is the same.
  if (fraction <= held_back && config.run().seed() == trained->run().seed()) return;
  throw Error(
      ExitCode::kUsage,
      "this validation set (data.validation_fraction={}, run.seed={}) contains samples that "
      "the model was trained on; expected the run's, data.validation_fraction={} and "
      "run.seed={}{}",
      fraction, config.run().seed(), held_back, trained->run().seed(),
      held_back > 0 ? "" : ": it had no validation set, so use the test set");
}

config::Config LoadEvaluationConfig(const EvaluationSource& source, const OpenedModel& model) {
  const config::Config config = EvaluationConfig(RunConfig(source, model), source.settings);
  std::string text;  // without defaults, which would hide values that depend on the GPU
  MUSTER_CHECK(google::protobuf::TextFormat::PrintToString(config, &text));
  const HeldFile written = HeldFile::OfText(text);
  try {
    config::Config loaded = LoadConfig(written.path(), source.settings);
    RefuseTrainingSettings(source.settings);
    return loaded;
  } catch (const Error& error) {
    throw Renamed(error, written.path(), model.shown + " (config)");
  }
}

EvaluationJob::EvaluationJob(config::Config resolved)
    : config(std::move(resolved)),
      graph(BuildGraph(config.model(), InputShape(config.data()))),
      class_names(config.data().class_names().begin(), config.data().class_names().end()) {}

SampleSet CountSet(const config::Config& config, SetChoice choice,
                   const std::function<DataCount(const config::Config&)>& count_data) {
  DataCount data{.train = config.data().synthetic().train_samples(),
                 .test = config.data().synthetic().test_samples()};
  if (NeedsFiles(config.data()) || config.data().validation_fraction() > 0) {
    data = count_data(config);
  }
  if (!data.problem.empty()) throw Error(data.code, data.problem);
  const bool validation = choice == SetChoice::kValidation ||
                          (choice == SetChoice::kTest && data.test == 0 && data.validation > 0);
  const SampleSet set = choice == SetChoice::kTraining ? SampleSet{"training", data.train}
                        : validation                   ? SampleSet{"validation", data.validation}
                                                       : SampleSet{"test", data.test};
  if (set.size > 0) return set;
  if (validation) {
    throw Error(ExitCode::kUsage,
                "--validation-set: the data have no validation set: expected its files, or the "
                "run's data.validation_fraction");
  }
  throw Error(ExitCode::kData, "the {} set has no samples", set.name);
}

void CheckWeights(const OpenedModel& model, const Graph& graph) {
  Arena weights(graph.arena_floats());
  const WeightsMatch match = LoadWeights(model.file, graph, {}, weights.floats());
  RequireFinite(model.shown, graph, match, weights.floats());
}

void AskWorker(const WorkerCall& call, const std::function<bool(const nlohmann::json&)>& take) {
  const HeldFile config = HeldFile::OfText(ConfigText(call.job.config));
  ChildOptions worker{.program = call.program,
                      .arguments = call.words,
                      .inherited_fds = call.place.lock_fds,
                      .environment = call.place.environment,
                      .cores = call.place.cores,
                      .memory_node = call.place.memory_node};
  worker.arguments.insert(worker.arguments.end(),
                          {"--config", config.path(), "--weights", call.model.held.path()});
  const auto take_line = [&](const nlohmann::json& line) {
    try {
      return take(line);
    } catch (const nlohmann::json::exception&) {
      throw Error(ExitCode::kFailure,
                  "muster-worker: expected a result, got {}: are muster and muster-worker from the "
                  "same build?",
                  JsonText(line));
    }
  };
  StreamJsonProgram(std::move(worker), kDeadlineSeconds, take_line, call.signals);
}

}  // namespace muster
