#include "cli/model/inspect_source.h"

#include <fmt/core.h>

#include <filesystem>

#include "cli/model/inspect_model.h"
#include "cli/text/units.h"
#include "cli/view/run_record.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "common/base/utf8.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/model/model_metadata.h"
#include "common/model/whole_file.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string Row(const std::string& key, const std::string& value) {
  return fmt::format("  {:<16} {}", key, Shown(value));
}

std::string AccuracyText(const Metadata& metadata) {
  const auto accuracy = TestAccuracyOf(metadata);
  return accuracy ? ", test accuracy " + FormatPercent(*accuracy, 2) : "";
}

std::string FileText(const std::string& path) {
  try {
    const SafetensorsReader file(path);
    RequireWhole(file);
    const Metadata& metadata = file.header().metadata;
    const auto step = StepOf(metadata);
    return fmt::format("{}{}{}", step ? "step " + FormatCount(*step) : "of no known step",
                       IsAverage(metadata) ? ", the moving average" : "", AccuracyText(metadata));
  } catch (const Error& error) {
    return fmt::format("cannot be used: {}", error.what());
  }
}

// What the directory of a run holds, in a few lines.
std::vector<std::string> RunLines(const std::string& run_dir) {
  std::vector<std::string> lines{run_dir};
  if (IsRunDir(run_dir)) {
    const RunRecord run = ReadRun(run_dir);
    std::string text = StateName(run.state);
    if (run.steps) text += ", " + Plural(*run.steps, "step");
    if (run.total_steps && run.total_steps != run.steps) {
      text += " of " + FormatCount(*run.total_steps);
    }
    if (run.test_accuracy) text += ", test accuracy " + FormatPercent(*run.test_accuracy, 2);
    lines.push_back(Row("run", text));
  }
  std::error_code ignored;
  for (const char* const name : kModelFiles) {
    const std::string path = run_dir + "/" + name;
    if (fs::exists(path, ignored))
      lines.push_back(Row("weights", fmt::format("{}: {}", name, FileText(path))));
  }
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    lines.push_back(Row("checkpoint", "checkpoints/" + name.Text()));
  }
  lines.emplace_back();
  return lines;
}

bool HasWeights(const std::string& run_dir) {
  std::error_code ignored;
  return fs::exists(run_dir + "/model.safetensors", ignored) || !ListCheckpoints(run_dir).empty();
}

void Append(std::vector<std::string>& lines, std::vector<std::string> more) {
  for (std::string& line : more) lines.push_back(std::move(line));
}

// What its state says. All of its tensors have been checked.
std::vector<std::string> StateLines(const checkpoint::State& state) {
  std::vector<std::string> lines{
      Row("written", fmt::format("{} by version {}", state.time(), state.muster_version())),
      Row("step",
          fmt::format("{} of {}, {} of the weights{}", FormatCount(state.step()),
                      FormatCount(state.plan().total_steps()), Plural(state.updates(), "update"),
                      state.evaluated() ? ", evaluated" : "")),
      Row("plan",
          fmt::format("global batch {}, {}, {} and {}", FormatCount(state.plan().global_batch()),
                      Plural(state.plan().slices(), "slice"),
                      Plural(state.plan().train_samples(), "training image"),
                      Plural(state.plan().test_samples(), "test image"))),
      Row("computed with", Join(state.arithmetic().worker(), "; ")), Row("checksums", "right")};
  if (!state.weights_hash().empty()) lines.push_back(Row("weights hash", state.weights_hash()));
  if (state.progress().has_last_evaluation()) {
    const checkpoint::Evaluated& last = state.progress().last_evaluation();
    lines.push_back(Row("evaluation", fmt::format("at step {}: test accuracy {}, test loss {:.4f}",
                                                  FormatCount(last.step()),
                                                  FormatPercent(last.accuracy(), 2), last.loss())));
  }
  return lines;
}

bool IsChosen(const ModelChoice& choice) { return choice.average || choice.raw || choice.best; }

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::vector<std::string> CheckpointLines(const std::string& folder) {
  const CheckpointReader checkpoint(folder);
  checkpoint.Verify();
  std::vector<std::string> lines =
      InspectModelLines(SafetensorsReader(folder + "/" + std::string(kTensorFile)), folder);
  Append(lines, StateLines(checkpoint.state()));
  return lines;
}

}  // namespace

Inspected InspectSource(const std::string& as_given, const ModelChoice& choice) {
  const std::string from = WithoutSlash(as_given);
  if (IsCheckpoint(from) && !IsChosen(choice)) return {.lines = CheckpointLines(from)};
  std::error_code ignored;
  Inspected result;
  std::vector<std::string>& lines = result.lines;
  if (fs::is_directory(from, ignored) && !IsCheckpoint(from)) {
    if (IsRunDir(from) || !ListCheckpoints(from).empty()) lines = RunLines(from);
    if (lines.size() > 1 && !HasWeights(from) && !IsChosen(choice)) {
      lines.back() = Row("weights", "none yet");
      return result;
    }
  }
  try {
    const OpenedModel model = OpenModel(from, choice);
    Append(lines, InspectModelLines(model.file, model.shown));
  } catch (const Error& error) {
    if (lines.empty()) throw;
    lines.pop_back();  // the gap before the weights
    result.trouble = error;
  }
  return result;
}

std::string ConfigTextIn(const std::string& as_given, const ModelChoice& choice) {
  const std::string from = WithoutSlash(as_given);
  if (IsCheckpoint(from) && !IsChosen(choice)) return ReadCheckpointState(from).config();
  return ConfigTextOf(OpenModel(from, choice).file);
}

}  // namespace muster
