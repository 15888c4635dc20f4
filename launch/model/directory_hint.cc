#include "launch/model/directory_hint.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/base/error.h"
#include "common/base/file_kind.h"
#include "common/base/join.h"
#include "common/checkpoint/list_checkpoints.h"
#include "launch/model/model_source.h"
#include "launch/runs/run_record.h"
#include "launch/text/units.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNamed = 8;

// The runs right below a directory, seed-2 before seed-10.
std::vector<RunRecord> RunsIn(const std::string& path) {
  std::vector<RunRecord> runs;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string dir = fs::path(path) / at->path().filename();
    try {
      if (IsRunDir(dir)) runs.push_back(ReadRun(dir));
    } catch (const Error&) {
      // One whose files cannot be read is none to recommend.
    }
  }
  std::ranges::sort(runs, {},
                    [](const RunRecord& run) { return std::pair(run.name.size(), run.name); });
  return runs;
}

// `--repeat` makes a directory for each run in the one that it is given.
bool IsSeries(const std::string& path) {
  std::error_code error;
  if (fs::exists(fs::path(path) / "repeat.json", error)) return true;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with("seed-") && at->is_directory(error)) return true;
  }
  return false;
}

// The first few of them, each in the words of `text`.
template <typename Text>
std::string Listed(const std::vector<RunRecord>& runs, const Text& text) {
  std::vector<std::string> texts;
  for (const RunRecord& run : runs) {
    if (texts.size() < kMostNamed) texts.push_back(text(run));
  }
  if (runs.size() > kMostNamed) {
    texts.push_back(fmt::format("and {} more", runs.size() - kMostNamed));
  }
  return Join(texts, ", ");
}

std::string WithAccuracy(const RunRecord& run) {
  return run.dir + (run.test_accuracy ? fmt::format(" ({})", FormatPercent(*run.test_accuracy, 2))
                                      : std::string());
}

// "runs/s/seed-2 (killed at step 10 of 20)"
std::string WithState(const RunRecord& run) {
  std::string text = fmt::format("{} ({}", run.dir, StateName(run.state));
  if (run.steps && run.state != RunState::kCompleted) {
    text += " at step " + FormatCount(*run.steps);
    if (run.total_steps) text += " of " + FormatCount(*run.total_steps);
  }
  return text + ")";
}

std::string BestOf(const std::vector<RunRecord>& runs) {
  const RunRecord* best = nullptr;
  for (const RunRecord& run : runs) {
    const bool better = run.test_accuracy && (!best || *run.test_accuracy > *best->test_accuracy);
    if (better) best = &run;
  }
  return best == nullptr || runs.size() < 2 ? "" : "; the best is " + best->dir;
}

std::string ParentOf(const std::string& path) {
  std::string parent = fs::path(path).parent_path();
  if (!parent.empty() && fs::path(path).filename() != ".." && fs::path(path).filename() != ".") {
    return parent;
  }
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole.parent_path() : whole.parent_path().parent_path();
}

// The folder of a run in which its checkpoints are.
bool IsCheckpointsFolder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return false;
  const fs::path run = ParentOf(path);
  return !ListCheckpoints(run).empty() && fs::equivalent(CheckpointsFolder(run), path, error);
}

// Of a checkpoint that somebody wants a run to go on from.
std::string HintForCheckpoint(const std::string& path) {
  const std::string folder = ParentOf(path);
  if (!IsCheckpointsFolder(folder)) {
    return fmt::format(
        "{}: is a checkpoint by itself, expected the directory of its run. A new run starts from "
        "its weights with --initial-weights: `muster export {} --format safetensors OUT` makes "
        "that file",
        path, ShellWord(path));
  }
  const std::string run = ParentOf(folder);
  const CheckpointName newest = ListCheckpoints(run).front();
  std::string text = fmt::format(
      "{}: is a checkpoint, expected the directory of its run: --resume {} goes on from the newest "
      "one, {}",
      path, ShellWord(run), newest.Text());
  if (fs::path(path).filename() == newest.Text()) return text;
  return text + fmt::format(
                    ". To go on from this one: copy the run (cp -r {} COPY), remove the newer "
                    "checkpoints from COPY/checkpoints, and --resume COPY",
                    ShellWord(run));
}

}  // namespace

std::string HintForWeights(const std::string& path) {
  if (IsCheckpointsFolder(path)) {
    const std::string run = ParentOf(path);
    return fmt::format(
        "{}: is where the checkpoints of a run are: give the run, {}, or one of "
        "them, such as {}/{}",
        path, run, path, ListCheckpoints(run).front().Text());
  }
  const std::vector<RunRecord> runs = RunsIn(path);
  const bool series = IsSeries(path);
  if (runs.empty()) {
    return series ? path + ": is a series (--repeat) without a run: none has begun" : "";
  }
  return fmt::format("{}: {}: give one of them: {}{}", path,
                     series ? "is a series of runs (--repeat), which have the weights"
                            : "is no run, but holds some",
                     Listed(runs, WithAccuracy), BestOf(runs));
}

std::string HintForFile(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return "";
  if (fs::exists(fs::path(path) / "model.safetensors", error)) {
    return fmt::format("{}: is the directory of a run: its weights are {}", path,
                       (fs::path(path) / "model.safetensors").string());
  }
  if (IsCheckpoint(path) || !ListCheckpoints(path).empty()) {
    return fmt::format(
        "{}: is a {}: `muster export {} --format safetensors OUT` makes a file of "
        "its weights",
        path, IsCheckpoint(path) ? "checkpoint" : "run", ShellWord(path));
  }
  return HintForWeights(path);
}

std::string HintForResume(const std::string& path) {
  if (IsCheckpoint(path)) return HintForCheckpoint(path);
  if (IsCheckpointsFolder(path)) {
    const std::string run = ParentOf(path);
    return fmt::format("{}: is where the checkpoints of a run are, expected the run: --resume {}",
                       path, ShellWord(run));
  }
  std::vector<RunRecord> runs = RunsIn(path);
  const bool series = IsSeries(path);
  if (runs.empty() && !series) return "";
  std::erase_if(runs, [](const RunRecord& run) { return run.state == RunState::kCompleted; });
  return fmt::format(
      "{}: {}, which are resumed one by one: {}", path,
      series ? "is a series of runs (--repeat)" : "is no run, but holds some",
      runs.empty() ? "all of them are completed" : "not completed are " + Listed(runs, WithState));
}

}  // namespace muster
