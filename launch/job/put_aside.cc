#include "launch/job/put_aside.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "common/base/error.h"
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

}  // namespace

std::string PutAside(const RunDir& dir, Aside what) {
  const fs::path aside = FreeAttempt(dir.path());
  std::vector<fs::path> keep{dir.LockPath(), dir.ServerLockPath(), dir.TokenPath()};
  if (what == Aside::kAttempt) keep.insert(keep.end(), {dir.ConfigPath(), dir.RepeatPath()});
  try {
    fs::create_directory(aside);
    const std::vector<fs::directory_entry> entries(fs::directory_iterator(dir.path()),
                                                   fs::directory_iterator());
    for (const fs::directory_entry& entry : entries) {
      const std::string name = entry.path().filename();
      const bool stays = std::ranges::find(keep, entry.path()) != keep.end();
      if (!stays && !name.starts_with("attempt-")) fs::rename(entry.path(), aside / name);
    }
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
    fs::create_directory(aside);
    for (const std::string& name : names) {
      if (fs::exists(folder / name)) fs::rename(folder / name, aside / name);
    }
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
