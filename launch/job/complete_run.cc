#include "launch/job/complete_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/model/whole_file.h"
#include "launch/job/resume_place.h"
#include "launch/job/resume_run.h"
#include "launch/model/checkpoint_model.h"
#include "launch/process/held_file.h"
#include "launch/text/console.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The summary of a run that was completed; null for another one's last line.
json LastLine(const std::string& metrics) {
  constexpr std::streamoff kLongest = 1 << 20;
  std::ifstream file(metrics, std::ios::binary | std::ios::ate);
  file.seekg(std::max<std::streamoff>(0, std::streamoff(file.tellg()) - kLongest));
  std::string text, last;
  while (std::getline(file, text)) last = std::move(text);
  json line = json::parse(last, nullptr, /*allow_exceptions=*/false);
  const bool completed = line.is_object() && line.value("final", json()) == true &&
                         line.value("reason", json()) == "completed";
  return completed ? line : json();
}

// The config of the run as its newest checkpoint holds it, with settings of this launch.
config::Config ConfigOfRun(const RunDir& dir, const SavePlace& place,
                           const std::vector<Setting>& settings) {
  const HeldFile kept = HeldFile::OfText(ConfigToResume(dir, place));
  config::Config config = LoadConfig(kept.path(), settings);
  ResolveConfig(config, AvailableCores());
  return config;
}

std::string HowToTrainLonger(const RunDir& dir, const config::Config& config) {
  if (RateFollowsLength(config.learning_rate())) {
    return fmt::format(
        "It cannot be made longer, since the rate of every step depends on its length "
        "(learning_rate.type={}); another run can begin with its weights: --initial-weights "
        "{}/model.safetensors",
        config::LearningRate::Type_Name(config.learning_rate().type()), dir.shown());
  }
  return fmt::format("To train for longer: muster launch --resume {} {}", dir.shown(),
                     config.run().has_steps()
                         ? fmt::format("--steps N, with N above {}", config.run().steps())
                         : fmt::format("--epochs N, with N above {}", config.run().epochs()));
}

// A file of weights that the run's last line names.
struct Model {
  std::string path;
  int64_t step = 0;
  bool average = false;
};

std::vector<Model> ModelsIn(const json& line, const RunDir& dir) {
  std::vector<Model> models;
  for (const json& one : line.value("models", json::array())) {
    if (!one.is_object()) continue;
    const json file = one.value("file", json()), step = one.value("step", json());
    if (!file.is_string() || !step.is_number_integer()) continue;
    models.push_back({.path = fs::path(dir.path()) / file.get<std::string>(),
                      .step = step.get<int64_t>(),
                      .average = one.value("average", json()) == true});
  }
  return models;
}

// From which checkpoint the file has been written again; "" if none has its weights.
std::string WriteAgain(const Model& model, const RunDir& dir) {
  for (const CheckpointName& name : ListCheckpoints(dir.path())) {
    if (name.step != model.step) continue;
    try {
      const CheckpointReader checkpoint(CheckpointsFolder(dir.path()) + "/" + name.Text());
      WriteCheckpointModel(checkpoint, model.average, model.path);
      return name.Text();
    } catch (const Error& error) {
      PrintError(fmt::format("muster: warning: {}\n", error.what()));
    }
  }
  return "";
}

ExitCode Mend(const std::vector<Model>& models, const RunDir& dir) {
  ExitCode code = ExitCode::kOk;
  for (const Model& model : models) {
    const std::string damage = DamageOf(model.path);
    if (damage.empty()) continue;
    if (const std::string from = WriteAgain(model, dir); !from.empty()) {
      PrintError(fmt::format("muster: warning: {}; it is written again from {}\n", damage, from));
      continue;
    }
    code = ExitCode::kFailure;
    PrintError(fmt::format(
        "muster: error: {}; no checkpoint that is left has the weights of step {}; the run can be "
        "repeated with the same bits: muster launch {}\n",
        damage, model.step, dir.ConfigPath()));
  }
  return code;
}

}  // namespace

std::optional<ExitCode> EndIfComplete(const RunDir& dir, const std::vector<Setting>& settings,
                                      bool automatic) {
  const SavePlace place = PlaceToResume(dir, settings);
  const std::string newest_place = NewestPlace(dir.path(), place);
  const std::string elsewhere = MetricsElsewhere(dir.path(), place);
  const bool is_here = newest_place == dir.path() && elsewhere.empty();
  if (newest_place.empty() || (!is_here && !automatic)) return std::nullopt;
  config::Config config = ConfigOfRun(dir, place, settings);
  const std::string done = CheckTakenUp(dir, config);
  const json last = LastLine(elsewhere.empty() ? dir.MetricsPath() : elsewhere);
  if (last.is_null()) return std::nullopt;
  const ChosenCheckpoint newest = ChooseCheckpoint(newest_place);
  if (!newest.reader || !newest.damaged.empty()) return std::nullopt;
  const checkpoint::State& state = newest.reader->state();
  const int64_t total = PlanSteps(config, state.plan().train_samples()).total_steps;
  const bool stopped = !StopReasonAt(config.evaluation(), state, total).empty();
  if (!stopped && state.step() < total) return std::nullopt;
  PlanTrace(dir, settings, config);  // refuses to trace what is over
  const ExitCode code = Mend(ModelsIn(last, dir), dir);
  PrintResult(fmt::format("The run in {} is complete: nothing is left to do ({}){}", dir.shown(),
                          done, stopped ? "" : ". " + HowToTrainLonger(dir, config)));
  return code;
}

}  // namespace muster
