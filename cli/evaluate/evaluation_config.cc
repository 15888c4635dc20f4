#include "cli/evaluate/evaluation_config.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/config/data_format.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Two samples for each worker: batch norm refuses to train on one.
constexpr int64_t kBatchPerWorker = 2;

config::Config RunConfig(const EvaluationSource& source, const OpenedModel& model) {
  if (!source.config_path.empty()) {
    std::vector<Setting> of_data;  // a folder of photos tells the classes
    std::ranges::copy_if(source.settings, std::back_inserter(of_data),
                         [](const Setting& setting) { return setting.path.starts_with("data."); });
    config::Config config = LoadConfig(source.config_path, of_data);
    if (MeasuresNormalization(config.data())) {
      throw Error(ExitCode::kUsage,
                  "{}: data.preprocess.measure_mean_stddev: expected mean and stddev of the "
                  "training that made the weights; config.txtpb of a run directory has them",
                  source.config_path);
    }
    return config;
  }
  std::optional<config::Config> config = ConfigOf(model.file.header().metadata, model.shown);
  if (config) return *std::move(config);
  const fs::path path = model.shown;
  if (path.filename() == kTensorFile && IsCheckpoint(path.parent_path())) {
    throw Error(ExitCode::kUsage, "{}: is a part of a checkpoint: give its folder, {}", model.shown,
                path.parent_path().string());
  }
  throw Error(ExitCode::kUsage,
              "{}: does not say which network and data it is of: give its config (--config CONFIG)",
              model.shown);
}

}  // namespace

config::Config EvaluationConfig(const config::Config& run, bool confusion_matrix) {
  config::Config config;
  *config.mutable_data() = run.data();
  *config.mutable_model() = run.model();
  *config.mutable_worker() = run.worker();
  *config.mutable_deadlines() = run.deadlines();
  config.mutable_run()->set_seed(run.run().seed());  // made-up data follow from it
  config.mutable_run()->set_steps(1);
  config.mutable_run()->set_batch_per_worker(kBatchPerWorker);
  config.mutable_run()->set_max_restarts(0);
  config::Cluster& cluster = *config.mutable_cluster();
  cluster.set_transport(run.cluster().transport());
  cluster.set_wire_dtype(run.cluster().wire_dtype());
  cluster.set_on_lost_worker(config::Cluster::ABORT);
  config.mutable_optimizer()->set_type(config::Optimizer::SGD);
  config.mutable_learning_rate()->set_base(0);
  config.mutable_evaluation()->set_batch(run.evaluation().batch());
  config.mutable_evaluation()->set_confusion_matrix(confusion_matrix);
  config.mutable_checkpoint()->set_keep_last(0);
  config.mutable_tensorboard()->set_enabled(false);
  return config;
}

HeldFile WriteEvaluationConfig(const EvaluationSource& source, const OpenedModel& model,
                               bool confusion_matrix) {
  const config::Config run = RunConfig(source, model);
  return HeldFile::Make([&](const std::string& path) {
    WriteFileAtomically(path, ConfigText(EvaluationConfig(run, confusion_matrix)));
  });
}

void CheckWeights(const OpenedModel& model, const Graph& graph) {
  Arena weights(graph.arena_floats());
  const WeightsMatch match = LoadWeights(model.file, graph, {}, weights.floats());
  RequireFinite(model.shown, graph, match, weights.floats());
}

}  // namespace muster
