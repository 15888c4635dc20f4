#include "cli/model/checkpoint_model.h"

#include <filesystem>

#include "cli/view/run_record.h"
#include "common/base/arena.h"
#include "common/base/error.h"
#include "common/base/version.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/hash_variables.h"
#include "common/model/write_model.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

config::Config ConfigIn(const CheckpointReader& checkpoint) {
  const checkpoint::State& state = checkpoint.state();
  return *ConfigOf({{"config", state.config()}, {"muster_version", state.muster_version()}},
                   checkpoint.folder());
}

// A checkpoint is mostly taken before its weights have been evaluated: then the run's metrics know.
void AddMetrics(const CheckpointReader& checkpoint, ModelInfo& info) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path run_dir;
  // It may be reached by a link, also from another run; or checkpoints/ may be one to somewhere
  // else.
  for (const fs::path& folder :
       {fs::weakly_canonical(checkpoint.folder(), ignored), fs::absolute(checkpoint.folder())}) {
    const fs::path around = folder.parent_path().parent_path();
    if (run_dir.empty() && IsRunDir(around)) run_dir = around;
  }
  if (run_dir.empty()) return;
  for (const MetricsRow& row : ReadRun(run_dir).rows) {
    if (row.step != static_cast<double>(info.step) || !row.test_accuracy) continue;
    info.test_accuracy = row.test_accuracy;
    info.test_loss = row.test_loss;
  }
}

ModelInfo InfoOf(const CheckpointReader& checkpoint, bool average, bool evaluates_average) {
  const checkpoint::State& state = checkpoint.state();
  ModelInfo info{.step = state.step(), .updates = state.updates(), .average = average};
  if (average != evaluates_average) return info;
  const checkpoint::Progress& progress = state.progress();
  if (progress.has_last_evaluation() && progress.last_evaluation().step() == state.step()) {
    info.test_accuracy = progress.last_evaluation().accuracy();
    info.test_loss = progress.last_evaluation().loss();
  } else {
    AddMetrics(checkpoint, info);
  }
  return info;
}

}  // namespace

CheckpointWeights WeightsIn(const CheckpointReader& checkpoint) {
  const config::Config config = ConfigIn(checkpoint);
  return {.evaluates_average = config.evaluation().use_ema(),
          .has_average = config.optimizer().has_ema_decay()};
}

void WriteCheckpointModel(const CheckpointReader& checkpoint, bool average,
                          const std::string& path) {
  const checkpoint::State& state = checkpoint.state();
  const config::Config config = ConfigIn(checkpoint);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  if (state.plan().layout_hash() != graph.layout().hash()) {
    throw Error(ExitCode::kUsage,
                "{}: its variables are not those that this version ({}) gives its network; it was "
                "written by version {}",
                checkpoint.folder(), kVersion, state.muster_version());
  }
  Arena weights(graph.arena_floats());
  for (const Variable& variable : graph.variables()) {
    checkpoint.Read((average ? "average." : "weights.") + variable.name,
                    weights.floats().subspan(variable.offset, variable.count));
  }
  ModelInfo info = InfoOf(checkpoint, average, config.evaluation().use_ema());
  info.weights_hash = HashVariables(graph.layout(), weights.floats());
  WriteModel(path, graph, weights.floats(), state.updates(), ModelMetadata(config, graph, info));
}

}  // namespace muster
