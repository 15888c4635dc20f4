#include "common/checkpoint/run_mark.h"

#include <algorithm>
#include <filesystem>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string Begun(const checkpoint::State& state) {
  try {
    return " (begun in " + ParseKeptConfig(state.config()).run().dir() + ")";
  } catch (const Error&) {
    return "";
  }
}

// Returns the folder's absolute path, even if `folder` is a link to it or ".".
fs::path WholePath(const std::string& folder) {
  std::error_code error;
  fs::path whole;
  if (fs::is_symlink(folder, error)) whole = fs::canonical(folder, error);
  if (whole.empty()) whole = fs::absolute(folder).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

bool IsRunId(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string RunIdIn(const std::string& folder) {
  const std::string text = ReadFileIfThere(folder + "/" + kRunIdFile);
  return IsRunId(text) ? text : "";
}

std::string ExpectedRunId(const std::string& checkpoint_folder) {
  const fs::path around = WholePath(checkpoint_folder).parent_path();
  if (around == CheckpointsFolder(around.parent_path())) {  // not a copied checkpoints folder
    if (std::string id = RunIdIn(around.parent_path()); !id.empty()) return id;
  }
  return RunIdIn(around);
}

void RequireOwnCheckpoints(const std::string& run_dir) {
  const std::string own = RunIdIn(run_dir);
  if (own.empty()) return;
  std::string others;
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    try {
      const checkpoint::State state = ReadAnyState(CheckpointFolder(run_dir, name));
      if (state.run_id() == own) return;
      if (others.empty()) others = state.run_id() + Begun(state);
    } catch (const Error&) {
      // ChooseCheckpoint reports what is wrong with this checkpoint.
    }
  }
  if (others.empty()) return;
  throw Error(ExitCode::kData,
              "{}: its checkpoints belong to another run: expected run {} ({}/{}), got run {}. "
              "Nothing was changed. Restore the run's own checkpoints; to continue from these, "
              "copy only checkpoints/ into an empty directory and resume that",
              run_dir, own, run_dir, kRunIdFile, others);
}

void RequireOwnFolder(const std::string& run_dir) {
  const std::string own = RunIdIn(run_dir), folder = CheckpointsFolder(run_dir);
  const std::string there = RunIdIn(folder);
  if (own.empty() || there.empty() || there == own) return;
  throw Error(ExitCode::kData,
              "{0}: expected run {1} ({2}/{3}), got run {4} ({0}/{3}): another run uses this "
              "folder, so this one could not write checkpoints. Nothing was changed. If no other "
              "run uses it any more, remove {0}/{3} and resume again",
              folder, own, run_dir, kRunIdFile, there);
}

}  // namespace muster
