#include "launch/model/model_source.h"

#include <filesystem>
#include <fstream>

#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/model/model_metadata.h"
#include "launch/model/checkpoint_model.h"
#include "launch/model/whole_model.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// A run under way replaces its files and removes its checkpoints.
constexpr int kAttempts = 5;

void CheckChoice(const OpenedModel& model, const ModelChoice& choice) {
  const bool average = IsAverage(model.file.header().metadata);
  if (choice.average && !average) {
    throw Error(ExitCode::kUsage,
                "--ema: {} is no moving average: its run had no optimizer.ema_decay, or this file "
                "holds the weights themselves",
                model.shown);
  }
  if (choice.raw && average) {
    throw Error(ExitCode::kUsage, "--raw: {} is the moving average of the weights", model.shown);
  }
}

OpenedModel OfFile(const std::string& path, const ModelChoice& choice) {
  for (int attempt = 1;; ++attempt) {
    HeldFile held = HeldFile::Of(path);
    OpenedModel model{path, std::move(held), SafetensorsReader(path)};
    if (attempt < kAttempts && !model.held.IsAt(path)) continue;  // replaced between the two
    RequireWholeModel(model.file);
    CheckChoice(model, choice);
    return model;
  }
}

OpenedModel OfCheckpoint(const CheckpointReader& checkpoint, const ModelChoice& choice) {
  const CheckpointWeights weights = WeightsIn(checkpoint);
  if (choice.average && !weights.has_average) {
    throw Error(ExitCode::kUsage,
                "--ema: {} holds no moving average: its run had no optimizer.ema_decay",
                checkpoint.folder());
  }
  const bool average = choice.average || (weights.evaluates_average && !choice.raw);
  HeldFile held = HeldFile::Make(
      [&](const std::string& path) { WriteCheckpointModel(checkpoint, average, path); });
  const std::string path = held.path();
  return {checkpoint.folder(), std::move(held), SafetensorsReader(path)};
}

// The newest checkpoint, if its weights have seen more steps than those in the file.
std::unique_ptr<CheckpointReader> NewerCheckpoint(const std::string& run_dir,
                                                  const std::string& file) {
  std::optional<int64_t> step;
  std::error_code ignored;
  if (fs::exists(file, ignored))
    step = StepOf(SafetensorsReader(file).header().metadata).value_or(0);
  for (int attempt = 1;; ++attempt) {
    const std::vector<CheckpointName> names = ListCheckpoints(run_dir);
    if (names.empty() || (step && names.front().step <= *step)) return nullptr;
    ChosenCheckpoint chosen = ChooseCheckpoint(run_dir);
    if (chosen.reader && (!step || chosen.name.step > *step)) return std::move(chosen.reader);
    if (chosen.reader || step) return nullptr;
    if (attempt == kAttempts) NoCheckpoint(run_dir, chosen.damaged);
  }
}

std::string FileOf(const std::string& run_dir, const ModelChoice& choice) {
  std::error_code ignored;
  if (choice.best) return run_dir + "/best.safetensors";
  // Which of the two is the product depends on what the run evaluates.
  for (const auto& [wanted, name] : {std::pair(choice.average, "/model-ema.safetensors"),
                                     std::pair(choice.raw, "/model-raw.safetensors")}) {
    if (wanted && fs::exists(run_dir + name, ignored)) return run_dir + name;
  }
  return run_dir + "/model.safetensors";
}

OpenedModel OfRun(const std::string& run_dir, const ModelChoice& choice) {
  const std::string file = FileOf(run_dir, choice);
  if (choice.best) return OfFile(file, choice);
  if (const auto checkpoint = NewerCheckpoint(run_dir, file)) {
    return OfCheckpoint(*checkpoint, choice);
  }
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    throw Error(ExitCode::kData,
                "{}: holds no weights: expected the directory of a run, with model.safetensors or "
                "checkpoints/, a checkpoint in there, or a file of weights",
                run_dir);
  }
  return OfFile(file, choice);
}

}  // namespace

OpenedModel OpenModel(const std::string& as_given, const ModelChoice& choice) {
  std::string from = as_given;
  while (from.size() > 1 && from.back() == '/') from.pop_back();
  std::error_code ignored;
  const bool checkpoint = IsCheckpoint(from);
  if (fs::is_directory(from, ignored) && !checkpoint) return OfRun(from, choice);
  if (choice.best) {
    throw Error(ExitCode::kUsage, "--best: {} is a {}; expected a run directory", from,
                checkpoint ? "checkpoint" : "file");
  }
  return checkpoint ? OfCheckpoint(CheckpointReader(from), choice) : OfFile(from, choice);
}

bool IsCheckpoint(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / kStateFile, ignored) ||
         (fs::is_directory(path, ignored) && ParseCheckpointName(fs::path(path).filename()));
}

bool IsModel(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return true;
  if (path.ends_with(".safetensors")) return true;
  // The length of a header, and the header: no text has zeros.
  std::string first(9, ' ');
  std::ifstream file(path, std::ios::binary);
  return file.read(first.data(), 9) && first[7] == '\0' && first[8] == '{';
}

}  // namespace muster
