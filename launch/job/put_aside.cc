#include "launch/job/put_aside.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/pattern.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/saved_for.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

fs::path FreeAttempt(const fs::path& folder) {
  fs::path free;
  for (int attempt = 1; free.empty() || fs::exists(free); ++attempt) {
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

// All of them, or none. Throws fs::filesystem_error.
void MoveAll(const std::vector<fs::path>& paths, const fs::path& folder) {
  fs::create_directory(folder);
  std::vector<std::pair<fs::path, fs::path>> moved;
  try {
    for (const fs::path& path : paths) {
      fs::rename(path, folder / path.filename());
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

std::string PutAside(const RunDir& dir, Aside what) {
  const fs::path aside = FreeAttempt(dir.path());
  try {
    std::vector<fs::path> paths, marks;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir.path())) {
      const fs::path& path = entry.path();
      if (!IsOf(path.filename().string(), what)) continue;
      // A link to where the run is to keep its checkpoints stays; there is none, but for a mark.
      const bool is_link = path == CheckpointsFolder(dir.path()) && entry.is_symlink();
      is_link ? marks.push_back(path / kRunIdFile) : paths.push_back(path);
    }
    MoveAll(paths, aside);
    for (const fs::path& mark : marks) fs::remove(mark);
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::kUsage, "{}: a run that left no checkpoint cannot be put aside: {}",
                dir.shown(), error.code().message());
  }
  return aside.filename();
}

std::string PutSavedAside(const SavePlace& place) {
  if (!KeepsThingsOf(place.run_dir, place.folder)) return "";
  const fs::path folder = place.folder, aside = FreeAttempt(folder);
  std::vector<std::string> names(std::begin(kModelFiles), std::end(kModelFiles));
  // The mark goes last: until then all of it is the run's.
  names.insert(names.end(), {"metrics.jsonl", "checkpoints", kRunIdFile, kSavedForFile});
  try {
    std::vector<fs::path> paths;
    for (const std::string& name : names) {
      if (fs::exists(folder / name)) paths.push_back(folder / name);
    }
    MoveAll(paths, aside);
  } catch (const fs::filesystem_error& error) {
    throw Error(
        ExitCode::kUsage,
        "checkpoint.save_to {}: what a run in {} that left no checkpoint has there cannot be "
        "put aside: {}",
        place.folder, place.run_dir, error.code().message());
  }
  return fmt::format("What a run in {} that left no checkpoint has in {} is in {} there",
                     place.run_dir, place.folder, aside.filename().string());
}

}  // namespace muster
