#include "cli/model/model_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/data/download.h"
#include "cli/text/units.h"
#include "cli/view/run_reader.h"
#include "common/base/error.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/hash_variables.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"
#include "common/model/write_model.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// A running job replaces its files and removes its checkpoints, so reading may have to be repeated.
constexpr int kAttempts = 5;

constexpr size_t kLookedAt = 1 << 16;  // bytes of a file that is weights or a config

config::Config ConfigIn(const CheckpointReader& checkpoint) {
  const checkpoint::State& state = checkpoint.state();
  return *ConfigOf({{"config", state.config()}, {"muster_version", state.muster_version()}},
                   checkpoint.folder());
}

// Most checkpoints are taken before their weights are evaluated, so the scores are in the run's
// metrics.
void AddMetrics(const CheckpointReader& checkpoint, ModelInfo& info) {
  std::error_code ignored;
  std::optional<RunRecord> run;
  // `folder` may be a link, even one in another run, or checkpoints/ may be a link to another
  // place.
  for (const fs::path& folder :
       {fs::weakly_canonical(checkpoint.folder(), ignored), fs::absolute(checkpoint.folder())}) {
    if (!run) run = ReadRunIfThere(folder.parent_path().parent_path());
  }
  if (!run) return;
  for (const MetricsRow& row : run->rows) {
    if (row.step != info.step) continue;
    if (row.validation.loss) {
      info.validation_accuracy = row.validation.accuracy;
      info.validation_loss = row.validation.loss;
    }
    if (row.test.loss) {
      info.test_accuracy = row.test.accuracy;
      info.test_loss = row.test.loss;
    }
  }
}

ModelInfo InfoOf(const CheckpointReader& checkpoint, bool average, bool evaluates_average) {
  const checkpoint::State& state = checkpoint.state();
  ModelInfo info{.step = state.step(), .updates = state.updates(), .average = average};
  if (average != evaluates_average) return info;
  const checkpoint::Progress& progress = state.progress();
  if (progress.has_last_evaluation() && progress.last_evaluation().step() == state.step()) {
    const checkpoint::Evaluated& last = progress.last_evaluation();
    if (!IsByLoss(last)) {
      (last.validation() ? info.validation_accuracy : info.test_accuracy) = last.accuracy();
    }
    (last.validation() ? info.validation_loss : info.test_loss) = last.loss();
  } else {
    AddMetrics(checkpoint, info);
  }
  if (progress.has_test() && progress.test().step() == state.step()) {
    if (!IsByLoss(progress.test())) info.test_accuracy = progress.test().accuracy();
    info.test_loss = progress.test().loss();
  }
  return info;
}

void CheckChoice(const OpenedModel& model, const ModelChoice& choice) {
  const bool average = IsAverage(model.file.header().metadata);
  if (choice.average && !average) {
    throw Error(
        ExitCode::kUsage,
        "--ema: {} is not a moving average: its run had no optimizer.ema_decay, or this file "
        "contains the weights themselves",
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
    if (attempt < kAttempts && !model.held.IsAt(path)) continue;  // the file was replaced meanwhile
    RequireWhole(model.file);
    CheckChoice(model, choice);
    return model;
  }
}

OpenedModel OfCheckpoint(const CheckpointReader& checkpoint, const ModelChoice& choice) {
  const config::Config config = ConfigIn(checkpoint);
  if (choice.average && !config.optimizer().has_ema_decay()) {
    throw Error(ExitCode::kUsage,
                "--ema: {} contains no moving average: its run had no optimizer.ema_decay",
                checkpoint.folder());
  }
  const bool average = choice.average || (config.evaluation().use_ema() && !choice.raw);
  HeldFile held = HeldFile::Make(
      [&](const std::string& path) { WriteCheckpointModel(checkpoint, average, path); });
  const std::string path = held.path();
  return {checkpoint.folder(), std::move(held), SafetensorsReader(path)};
}

// The newest checkpoint, if it is of a later step than the file.
std::unique_ptr<CheckpointReader> NewerCheckpoint(const std::string& run_dir,
                                                  const std::string& file) {
  std::optional<int64_t> step;
  if (!file.empty()) step = StepOf(SafetensorsReader(file).header().metadata).value_or(0);
  for (int attempt = 1;; ++attempt) {
    const std::vector<CheckpointName> names = ListCheckpoints(run_dir);
    if (names.empty() || (step && names.front().step <= *step)) return nullptr;
    ChosenCheckpoint chosen = ChooseCheckpoint(run_dir);
    if (chosen.reader && (!step || chosen.name.step > *step)) return std::move(chosen.reader);
    if (chosen.reader || step) return nullptr;
    if (attempt == kAttempts) NoCheckpoint(run_dir, chosen.damaged);
  }
}

bool HoldsWeights(const std::string& run_dir) {
  std::error_code ignored;
  return fs::exists(run_dir + "/model.safetensors", ignored) ||
         fs::exists(run_dir + "/best.safetensors", ignored) || !ListCheckpoints(run_dir).empty();
}

// The possible file names for the choice, in order of preference. Whether the average or the
// weights are in model.safetensors depends on what the run evaluates.
std::vector<std::string> NamesOf(const ModelChoice& choice) {
  if (choice.best) return {"best.safetensors"};
  if (choice.average) return {"model-ema.safetensors", "model.safetensors"};
  if (choice.raw) return {"model-raw.safetensors", "model.safetensors"};
  return {"model.safetensors"};
}

// The path of the chosen file, or "" if there is none.
std::string FileOf(const std::string& run_dir, const ModelChoice& choice) {
  for (const std::string& name : NamesOf(choice)) {
    std::string path = fs::path(run_dir) / name;
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path;
  }
  return "";
}

// Throws if the run had a later best evaluation, whose weights could not be written or were
// removed.
void CheckIsBest(const std::string& run_dir, const std::string& file) {
  const auto run = ReadRunIfThere(run_dir);
  if (!run || run->state == RunState::kRunning) return;  // it may not have written the weights yet
  const MetricsRow* const best = run->best();
  if (best == nullptr) return;
  const int64_t step = StepOf(SafetensorsReader(file).header().metadata).value_or(0);
  if (step >= best->step) return;
  throw Error(ExitCode::kData,
              "{} has the weights of step {}, but the run's best evaluation was at step {}, whose "
              "weights are missing; to use those of step {}, pass this file instead of the run",
              file, step, best->step, step);
}

// The weights that a run's best evaluation chose, if they are there.
struct BestWeights {
  int64_t step;
  bool validated;  // by a validation set; the test set may only be looked at
};

std::optional<BestWeights> FindBest(const std::string& run_dir) {
  const std::string file = FileOf(run_dir, {.best = true});
  const auto run = file.empty() ? std::nullopt : ReadRunIfThere(run_dir);
  const MetricsRow* const best = run ? run->best() : nullptr;
  if (best == nullptr) return std::nullopt;
  int64_t step = 0;
  try {
    step = StepOf(SafetensorsReader(file).header().metadata).value_or(0);
  } catch (const Error&) {
    if (run->validates()) throw;  // they are the ones to use
    return std::nullopt;
  }
  if (step < best->step && run->state != RunState::kRunning) return std::nullopt;
  return BestWeights{step, run->validates()};
}

OpenedModel OfRun(const std::string& run_dir, const ModelChoice& choice) {
  const std::string file = FileOf(run_dir, choice);
  if (file.empty() && !HoldsWeights(run_dir) && !IsRunDir(run_dir)) {
    throw Error(ExitCode::kUsage,
                "{}: expected the directory of a run, a checkpoint or a weights file; `muster runs "
                "{}` lists the runs in a directory",
                run_dir, ShellWord(run_dir));
  }
  if (!choice.best) {
    const auto checkpoint = NewerCheckpoint(run_dir, file);
    if (checkpoint) return OfCheckpoint(*checkpoint, choice);
  } else if (file.empty()) {
    throw Error(ExitCode::kData, "{}/best.safetensors: cannot be read: it does not exist", run_dir);
  } else {
    CheckIsBest(run_dir, file);
  }
  if (file.empty()) {
    throw Error(
        ExitCode::kData,
        "{}: contains no weights: expected the directory of a run with model.safetensors or "
        "checkpoints/, a checkpoint, or a weights file",
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
  if (fs::is_directory(from, ignored) && !checkpoint) {
    if (choice.best || choice.average || choice.raw) return OfRun(from, choice);
    const auto best = choice.last ? std::nullopt : FindBest(from);
    if (best && best->validated) return OfRun(from, {.best = true});
    OpenedModel model = OfRun(from, {});
    const auto step = StepOf(model.file.header().metadata);
    if (best && step != best->step) {
      model.note = fmt::format("the last; --best are those of step {}, the best evaluation",
                               FormatCount(best->step));
    }
    return model;
  }
  if (choice.best || choice.last) {
    throw Error(ExitCode::kUsage, "--{}: {} is a {}; expected a run directory",
                choice.best ? "best" : "last", from, checkpoint ? "checkpoint" : "file");
  }
  return checkpoint ? OfCheckpoint(CheckpointReader(from), choice) : OfFile(from, choice);
}

std::string DescribeModel(const OpenedModel& model) {
  const Metadata& metadata = model.file.header().metadata;
  const auto step = StepOf(metadata);
  return fmt::format("{}{}{}{}", model.shown, step ? ", step " + FormatCount(*step) : "",
                     IsAverage(metadata) ? ", the moving average of the weights" : "",
                     model.note.empty() ? "" : " (" + model.note + ")");
}

bool IsCheckpoint(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / kStateFile, ignored) ||
         (fs::is_directory(path, ignored) && ParseCheckpointName(fs::path(path).filename()));
}

bool IsModel(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored) || path.ends_with(".safetensors")) return true;
  if (!fs::is_regular_file(path, ignored)) return false;  // a config may be a pipe
  // Unlike a config, weights have zero bytes. If a damaged file has none at its start, the keys of
  // a safetensors header tell.
  std::string first(kLookedAt, ' ');
  std::ifstream(path, std::ios::binary).read(first.data(), std::ssize(first));
  return first.find('\0') != std::string::npos ||
         first.find("\"data_offsets\"") != std::string::npos;
}

void WriteCheckpointModel(const CheckpointReader& checkpoint, bool average,
                          const std::string& path) {
  const checkpoint::State& state = checkpoint.state();
  const config::Config config = ConfigIn(checkpoint);
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  if (state.plan().layout_hash() != graph.layout().hash()) {
    throw Error(ExitCode::kUsage,
                "{}: its variables do not match those of its network in this version ({}); it was "
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

void CheckOutputFile(const std::string& path, bool force) {
  std::error_code ignored;  // a later write reports the error
  if (path.empty() || path == "-" || fs::is_directory(path, ignored)) {
    throw Error(ExitCode::kUsage, "OUT is \"{}\": expected the name of a file", path);
  }
  if (force || !fs::exists(fs::symlink_status(path, ignored))) return;
  throw Error(ExitCode::kUsage,
              "{}: already exists; choose another name, or overwrite it with --force", path);
}

namespace {

// The folder as a word behind `muster weights get NAME`, unless that would choose it anyway.
std::string FolderBehind(const fs::path& file) {
  std::error_code ignored;
  const fs::path folder = fs::absolute(file, ignored).parent_path();
  const bool usual = folder == fs::absolute(kWeightsFolder, ignored);
  return usual ? "" : " " + ShellWord(folder.string());
}

}  // namespace

std::vector<std::string> DescribeInitialWeights(const config::Run& run, const Graph& graph) {
  if (run.initial_weights().empty()) return {};
  std::error_code error;
  if (!fs::exists(run.initial_weights(), error) && !error) {
    const fs::path path = run.initial_weights();
    for (const PublishedWeights& known : ImagenetWeights()) {
      if (path.stem() != known.network) continue;
      throw Error(ExitCode::kData,
                  "run.initial_weights: {} does not exist: get it with `muster weights get {}{}`, "
                  "or start from random weights with --from-scratch",
                  path.string(), known.network, FolderBehind(path));
    }
    throw Error(ExitCode::kData,
                "run.initial_weights: {} does not exist: expected a safetensors file, as `muster "
                "import` or `muster data whiten` writes it; the config's comments may name the "
                "command that makes it, and --from-scratch starts from random weights",
                path.string());
  }
  const SafetensorsReader file(run.initial_weights());
  RequireWhole(file);
  Arena weights(graph.arena_floats());
  const WeightsMatch match =
      LoadWeights(file, graph, {.skip_mismatched = run.skip_mismatched()}, weights.floats());
  RequireFinite(file.path(), graph, match, weights.floats(), "; training cannot remove them");
  for (size_t v = 0; v < graph.variables().size(); ++v) {
    const Layer& layer = graph.layers()[static_cast<size_t>(graph.variables()[v].layer)];
    if (!layer.frozen || std::ranges::count(match.variables, static_cast<int>(v)) > 0) continue;
    throw Error(
        ExitCode::kUsage,
        "model.freeze: layer \"{}\" would stay random, because {} has no {} that fits; leave "
        "it out",
        layer.name, file.path(), graph.variables()[v].name);
  }
  const auto step = StepOf(file.header().metadata);
  std::vector<std::string> lines{fmt::format(
      "from {}{}: {} of {}", file.path(), step ? fmt::format(" (step {})", FormatCount(*step)) : "",
      match.variables.size(), Plural(static_cast<int64_t>(graph.variables().size()), "variable"))};
  constexpr size_t kMostShown = 8;  // weights of another network would fill the screen
  const size_t all = match.skipped.size(), shown = all > kMostShown ? kMostShown - 1 : all;
  for (size_t i = 0; i < shown; ++i) lines.push_back("skipped: " + match.skipped[i]);
  if (shown < all) lines.push_back(fmt::format("skipped: {} more", all - shown));
  return lines;
}

}  // namespace muster
