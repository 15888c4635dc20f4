#include "launch/job/complete_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/join.h"
#include "common/base/json_text.h"
#include "common/base/plain_file.h"
#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/checkpoint/saved_for.h"
#include "common/model/model_metadata.h"
#include "common/model/whole_file.h"
#include "common/tensors/safetensors_reader.h"
#include "launch/job/bring_back.h"
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
  std::ifstream file = ReadPlainFile(metrics);
  file.seekg(0, std::ios::end);
  file.seekg(std::max<std::streamoff>(0, std::streamoff(file.tellg()) - kLongest));
  std::string text, last;
  while (std::getline(file, text)) last = std::move(text);
  json line = ParseJson(last);
  const bool completed = line.is_object() && line.value("final", json()) == true &&
                         line.value("reason", json()) == "completed";
  return completed ? line : json();
}

// The config of the run as its newest checkpoint holds it, with settings of this launch.
config::Config ConfigOfRun(const RunDir& dir, const SavePlace& place,
                           const std::vector<Setting>& settings) {
  const HeldFile kept = HeldFile::OfText(ConfigToResume(place));
  try {
    config::Config config = LoadConfig(kept.path(), settings);
    ResolveConfig(config, AvailableCores());
    return config;
  } catch (const Error& error) {  // names the run's file, where a person looks
    std::string text = error.what();
    if (text.starts_with(kept.path())) text.replace(0, kept.path().size(), dir.ConfigPath());
    throw Error(error.code(), text);
  }
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
  std::string name;
  int64_t step = 0;
  bool average = false;
};

std::vector<Model> ModelsIn(const json& line) {
  std::vector<Model> models;
  for (const json& one : line.value("models", json::array())) {
    if (!one.is_object()) continue;
    const json file = one.value("file", json()), step = one.value("step", json());
    if (!file.is_string() || !step.is_number_integer()) continue;
    models.push_back({.name = fs::path(file.get<std::string>()).filename(),
                      .step = step.get<int64_t>(),
                      .average = one.value("average", json()) == true});
  }
  return models;
}

std::map<std::string, int64_t> StepsOfModels(const std::vector<Model>& models) {
  std::map<std::string, int64_t> steps;
  for (const Model& model : models) steps[model.name] = model.step;
  return steps;
}

// What is wrong with it, where it is; "" if it is whole in one of the two places.
std::string WrongWith(const Model& model, const SavePlace& place) {
  const std::string here = place.run_dir + "/" + model.name,
                    there = ModelElsewhere(place, model.name);
  std::string damage = DamageOf(here);
  if (damage.empty() || there.empty()) return damage;
  if (std::string other = DamageOf(there); !other.empty()) return other;
  // The file of an earlier end of the run may still be there.
  return StepOf(SafetensorsReader(there).header().metadata) == model.step ? "" : damage;
}

// From which checkpoint the file has been written again; "" if none has its weights.
std::string WriteAgain(const Model& model, const SavePlace& place) {
  std::vector<std::string> folders{place.run_dir};
  if (KeepsThingsOf(place.run_dir, place.folder)) folders.push_back(place.folder);
  std::vector<fs::path> checkpoints;
  for (const std::string& folder : folders) {
    for (const CheckpointName& name : ListCheckpoints(folder)) {
      if (name.step == model.step) {
        checkpoints.push_back(fs::path(CheckpointsFolder(folder)) / name.Text());
      }
    }
  }
  for (const std::string& to : folders) {
    for (const fs::path& from : checkpoints) {
      try {
        WriteCheckpointModel(CheckpointReader(from), model.average, to + "/" + model.name);
        const bool is_here = from.parent_path() == CheckpointsFolder(place.run_dir);
        return is_here ? from.filename() : from;
      } catch (const Error& error) {
        PrintError(fmt::format("muster: warning: {}\n", error.what()));
      }
    }
  }
  return "";
}

ExitCode Mend(const std::vector<Model>& models, const SavePlace& place, const RunDir& dir) {
  ExitCode code = ExitCode::kOk;
  for (const Model& model : models) {
    const std::string damage = WrongWith(model, place);
    if (damage.empty()) continue;
    if (const std::string from = WriteAgain(model, place); !from.empty()) {
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

// What has come back, and what has not.
std::string BackText(const BroughtBack& back, const SavePlace& place) {
  std::string text;
  if (!back.files.empty()) {
    text += fmt::format("\nBack from {}: {}", place.folder, Join(back.files, ", "));
  }
  if (!back.elsewhere.empty()) {
    text += fmt::format("\nThe run directory has no room yet for what is in {}",
                        Join(back.elsewhere, ", "));
  }
  return text;
}

json LastLineOf(const SavePlace& place) {
  const std::string elsewhere = MetricsElsewhere(place);
  return LastLine(elsewhere.empty() ? place.run_dir + "/metrics.jsonl" : elsewhere);
}

BroughtBack BringBackModels(const SavePlace& place, const std::vector<Model>& models) {
  BroughtBack back = BringBack(place, StepsOfModels(models));
  for (const std::string& one : back.mended) {
    PrintError(fmt::format("muster: warning: {}\n", one));
  }
  return back;
}

ExitCode EndWithoutCheckpoint(const RunDir& dir, const SavePlace& place) {
  const BroughtBack back = BringBackModels(place, ModelsIn(LastLineOf(place)));
  PrintResult(fmt::format(
      "The run in {0} is complete: nothing is left to do. No checkpoint of it is left, "
      "so it cannot be made longer; another run can begin with its weights: --initial-weights "
      "{0}/model.safetensors{1}",
      dir.shown(), BackText(back, place)));
  return ExitCode::kOk;
}

}  // namespace

bool IsCompleteWithoutCheckpoint(const SavePlace& place, const std::vector<Setting>& settings) {
  const std::string config = place.run_dir + "/config.txtpb";
  std::error_code ignored;
  if (!NewestPlace(place).empty() || !fs::exists(config, ignored)) return false;
  const json last = LastLineOf(place);
  if (last.is_null() || EndsElsewhere(LoadConfig(config, {}), LoadConfig(config, settings))) {
    return false;
  }
  const std::vector<Model> models = ModelsIn(last);
  const auto whole = [&](const Model& model) { return WrongWith(model, place).empty(); };
  return !models.empty() && std::ranges::all_of(models, whole);
}

std::optional<ExitCode> EndIfComplete(const RunDir& dir, const std::vector<Setting>& settings) {
  const SavePlace place = PlaceToResume(dir, settings);
  const std::string newest_place = NewestPlace(place);
  if (IsCompleteWithoutCheckpoint(place, settings)) return EndWithoutCheckpoint(dir, place);
  if (newest_place.empty()) return std::nullopt;
  config::Config config = ConfigOfRun(dir, place, settings);
  (void)CheckTakenUp(dir, config);
  const json last = LastLineOf(place);
  if (last.is_null()) return std::nullopt;
  const ChosenCheckpoint newest = ChooseCheckpoint(newest_place);
  if (!newest.reader || !newest.damaged.empty()) return std::nullopt;
  const checkpoint::State& state = newest.reader->state();
  const int64_t total = PlanSteps(config, state.plan().train_samples()).total_steps;
  const bool stopped = !StopReasonAt(config.evaluation(), state, total).empty();
  if (!stopped && state.step() < total) return std::nullopt;
  PlanTrace(dir, settings, config);  // refuses to trace what is over
  const std::vector<Model> models = ModelsIn(last);
  const BroughtBack back = BringBackModels(place, models);
  const ExitCode code = Mend(models, place, dir);
  PrintResult(fmt::format("The run in {} is complete: nothing is left to do ({}){}{}", dir.shown(),
                          CheckTakenUp(dir, config),  // from where its checkpoint is now
                          stopped ? "" : ". " + HowToTrainLonger(dir, config),
                          BackText(back, place)));
  return code;
}

}  // namespace muster
