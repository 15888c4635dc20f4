#include "cli/job/put_aside.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/view/run_record.h"
#include "common/base/error.h"
#include "common/base/pattern.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/run_mark.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

fs::path FreeAttempt(const fs::path& folder) {
  fs::path free;
  for (int attempt = 1; free.empty() || fs::exists(fs::symlink_status(free)); ++attempt) {
    free = folder / fmt::format("attempt-{}", attempt);
  }
  return free;
}

bool IsOfAttempt(std::string_view name) {
  constexpr std::string_view kNames[] = {"metrics.jsonl", "status.json",          "server.log",
                                         kRunIdFile,      "confusion_matrix.csv", "checkpoints"};
  if (std::ranges::count(kNames, name) > 0 || std::ranges::count(kModelFiles, name) > 0)
    return true;
  return !Search(
              "^(worker-[0-9]+\\.log|trace\\.(server|worker-[0-9]+)\\.part|"
              "events\\.out\\.tfevents\\.[0-9]+\\..*)$",
              std::string(name))
              .empty();
}

bool IsOf(std::string_view name, Aside what) {
  if (what == Aside::kRun && (name == "config.txtpb" || name == "repeat.json")) return true;
  return IsOfAttempt(name);
}

// A file that the run begins with, wherever it lies.
bool IsSame(const fs::path& path, const std::string& input) {
  std::error_code ignored;
  return !input.empty() && fs::equivalent(path, input, ignored);
}

// All of them, or none; but what somebody has mounted stays. Throws fs::filesystem_error.
void MoveAll(const std::vector<fs::path>& paths, const fs::path& folder) {
  fs::create_directory(folder);
  std::vector<std::pair<fs::path, fs::path>> moved;
  try {
    for (const fs::path& path : paths) {
      std::error_code error;
      fs::rename(path, folder / path.filename(), error);
      if (error == std::errc::device_or_resource_busy && fs::is_directory(path)) continue;
      if (error) throw fs::filesystem_error("rename", path, error);
      moved.emplace_back(folder / path.filename(), path);
    }
  } catch (const fs::filesystem_error&) {
    std::error_code ignored;
    for (const auto& [now, before] : moved) fs::rename(now, before, ignored);
    fs::remove(folder, ignored);
    throw;
  }
}

}  // namespace

std::string PutAside(const RunDir& dir, Aside what, const std::string& input) {
  const fs::path aside = FreeAttempt(dir.path()), checkpoints = CheckpointsFolder(dir.path());
  try {
    std::vector<fs::path> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir.path())) {
      const fs::path& path = entry.path();
      if (!IsOf(path.filename().string(), what) || IsSame(path, input)) continue;
      if (path != checkpoints || !entry.is_symlink()) paths.push_back(path);
    }
    MoveAll(paths, aside);
    // A link to where the run is to keep its checkpoints, or what is mounted there, has stayed;
    // there is none, but for a mark.
    std::error_code nothing_there;
    fs::remove(checkpoints / kRunIdFile, nothing_there);
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::kUsage, "{}: a run that left no checkpoint cannot be put aside: {}",
                dir.shown(), error.code().message());
  }
  return aside.filename();
}

}  // namespace muster
