#include "cli/job/complete_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "cli/job/resume_run.h"
#include "cli/model/model_source.h"
#include "cli/process/held_file.h"
#include "cli/text/console.h"
#include "cli/view/run_reader.h"
#include "common/base/file.h"
#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/config/job_size.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"
#include "common/tensors/safetensors_reader.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// The summary of a completed run. Empty if only the status reports completion, or metrics.jsonl
// lacks the last line: resuming the run then writes them again.
std::optional<RunEnd> CompletionOf(const std::string& run_dir) {
  const auto run = ReadRunIfThere(run_dir);
  if (!run || !run->end || run->end->state != RunState::kCompleted) return std::nullopt;
  const std::string lines = ReadFileIfThere(run_dir + "/metrics.jsonl");
  if (!lines.ends_with('\n')) return std::nullopt;
  const size_t last = lines.find_last_of('\n', lines.size() - 2) + 1;
  return lines.find("\"final\":true", last) != std::string::npos ? run->end : std::nullopt;
}

// The config in the newest checkpoint, with the settings of this launch.
config::Config ConfigOfRun(const RunDir& dir, const std::vector<Setting>& settings) {
  const HeldFile kept = HeldFile::OfText(ConfigToResume(dir.path()));
  try {
    config::Config config = LoadConfig(kept.path(), settings);
    ResolveConfig(config, AvailableCores());
    return config;
  } catch (const Error& error) {
    throw Renamed(error, kept.path(), dir.ConfigPath());
  }
}

std::string HowToTrainLonger(const RunDir& dir, const config::Config& config) {
  if (RateFollowsLength(config.learning_rate())) {
    return fmt::format(
        "It cannot be extended, because the rate of every step depends on the length of the run "
        "(learning_rate.type={}). A new run can start from its weights: --initial-weights "
        "{}/model.safetensors",
        config::LearningRate::Type_Name(config.learning_rate().type()), dir.shown());
  }
  return fmt::format("To train longer: muster launch --resume {} {}", dir.shown(),
                     config.run().has_steps()
                         ? fmt::format("--steps N, with N above {}", config.run().steps())
                         : fmt::format("--epochs N, with N above {}", config.run().epochs()));
}

// A weights file that the run should have left.
struct Model {
  std::string name;
  int64_t step = 0;
  bool average = false;
  std::string damage = {};
};

// Rewrites the file from a checkpoint. Returns the name of the checkpoint, or "" if none holds its
// weights.
std::string WriteAgain(const Model& model, const std::string& run_dir) {
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    if (name.step != model.step) continue;
    try {
      WriteCheckpointModel(CheckpointReader(CheckpointFolder(run_dir, name)), model.average,
                           run_dir + "/" + model.name);
      return name.Text();
    } catch (const Error& error) {
      if (error.code() == ExitCode::kFailure) throw;  // writing would fail from every checkpoint
      PrintError(fmt::format("muster: warning: {}\n", error.what()));
    }
  }
  return "";
}

// The files that the run has written, and those that it could not write at its end, for example on
// a full disk, but that a checkpoint can restore.
std::vector<Model> ModelsOf(const config::Config& config, int64_t last_step, const RunEnd& end,
                            const std::string& run_dir) {
  const bool use_average = config.evaluation().use_ema();
  std::vector<Model> models{{"model.safetensors", last_step, use_average}};
  if (config.optimizer().has_ema_decay()) {
    models.push_back(
        {use_average ? "model-raw.safetensors" : "model-ema.safetensors", last_step, !use_average});
  }
  if (end.best_step) models.push_back({"best.safetensors", *end.best_step, use_average});
  const std::vector<CheckpointName> kept = ListCheckpoints(run_dir);
  std::erase_if(models, [&](const Model& model) {
    return std::ranges::find(end.weights, model.name) == end.weights.end() &&
           std::ranges::find(kept, model.step, &CheckpointName::step) == kept.end();
  });
  for (Model& model : models) model.damage = DamageOf(run_dir + "/" + model.name);
  return models;
}

bool IsOfAnotherStep(const Model& model, const std::string& run_dir) {
  if (!model.damage.empty()) return false;
  const auto step = StepOf(SafetensorsReader(run_dir + "/" + model.name).header().metadata);
  return step && step != model.step;
}

ExitCode Mend(const std::vector<Model>& models, const RunDir& dir) {
  ExitCode code = ExitCode::kOk;
  for (const Model& model : models) {
    if (model.damage.empty()) continue;
    if (const std::string from = WriteAgain(model, dir.path()); !from.empty()) {
      PrintError(fmt::format("muster: warning: {}; restored it from {}\n", model.damage, from));
      continue;
    }
    code = ExitCode::kFailure;
    PrintError(fmt::format(
        "muster: error: {}; no remaining checkpoint holds the weights of step {}. Repeat the run "
        "to get the same bits: muster launch {}\n",
        model.damage, model.step, dir.ConfigPath()));
  }
  return code;
}

}  // namespace

bool IsCompleteWithoutCheckpoint(const std::string& run_dir, const std::vector<Setting>& settings) {
  const std::string config = run_dir + "/config.txtpb";
  std::error_code ignored;
  if (!ListCheckpoints(run_dir).empty() || !fs::exists(config, ignored)) return false;
  const auto end = CompletionOf(run_dir);
  if (!end || EndsElsewhere(LoadConfig(config, {}), LoadConfig(config, settings))) return false;
  return std::ranges::find(end->weights, "model.safetensors") != end->weights.end() &&
         std::ranges::all_of(end->weights, [&](const std::string& name) {
           return DamageOf(run_dir + "/" + name).empty();
         });
}

std::optional<ExitCode> EndIfComplete(const RunDir& dir, const std::vector<Setting>& settings) {
  if (IsCompleteWithoutCheckpoint(dir.path(), settings)) {
    PrintResult(fmt::format(
        "The run in {0} is complete: nothing is left to do. It has no checkpoint left, so it "
        "cannot be extended. A new run can start from its weights: --initial-weights "
        "{0}/model.safetensors",
        dir.shown()));
    return ExitCode::kOk;
  }
  if (ListCheckpoints(dir.path()).empty()) return std::nullopt;
  config::Config config = ConfigOfRun(dir, settings);
  const std::string done = CheckTakenUp(dir, config);
  const auto end = CompletionOf(dir.path());
  if (!end) return std::nullopt;
  const ChosenCheckpoint newest = ChooseCheckpoint(dir.path());
  if (!newest.reader || !newest.damaged.empty()) return std::nullopt;
  const checkpoint::State& state = newest.reader->state();
  const int64_t total = PlanSteps(config, state.plan().train_samples()).total_steps;
  const bool stopped = !StopReasonAt(config.evaluation(), state, total).empty();
  if (!stopped && state.step() < total) return std::nullopt;
  // The line or the weights are of another end if the checkpoints after this one were removed.
  if (end->step != state.step()) return std::nullopt;
  const std::vector<Model> models = ModelsOf(config, state.step(), *end, dir.path());
  const auto is_other = [&](const Model& model) { return IsOfAnotherStep(model, dir.path()); };
  if (std::ranges::any_of(models, is_other)) return std::nullopt;
  PlanTrace(dir, settings, config);  // rejects a trace of a run that is over
  const ExitCode code = Mend(models, dir);
  PrintResult(fmt::format("The run in {} is complete: nothing is left to do ({}){}", dir.shown(),
                          done, stopped ? "" : ". " + HowToTrainLonger(dir, config)));
  return code;
}

}  // namespace muster
