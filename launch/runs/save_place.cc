#include "launch/runs/save_place.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "common/base/read_text.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/saved_for.h"
#include "launch/runs/run_record.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

uintmax_t SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

SavePlace SavePlaceOf(const std::string& run_dir) {
  return {run_dir, PlacesInConfigOf(run_dir).save_to};
}

bool HasCheckpointsElsewhere(const SavePlace& place) {
  return KeepsThingsOf(place.run_dir, place.folder) && !ListCheckpoints(place.folder).empty();
}

std::string NewestPlace(const SavePlace& place) {
  const std::vector<CheckpointName> here = ListCheckpoints(place.run_dir);
  if (!HasCheckpointsElsewhere(place)) return here.empty() ? "" : place.run_dir;
  const std::vector<CheckpointName> there = ListCheckpoints(place.folder);
  return !here.empty() && there.front() <= here.front() ? place.run_dir : place.folder;
}

std::string RunThatSavesTo(const std::string& folder) {
  const std::optional<SavedFor> mark = SavedForIn(folder);
  std::error_code ignored;
  if (!mark || fs::equivalent(mark->run_dir, folder, ignored)) return "";
  const bool is_run = fs::exists(mark->run_dir + "/config.txtpb", ignored);
  return is_run && KeepsThingsOf(mark->run_dir, folder) ? mark->run_dir : "";
}

std::string ModelElsewhere(const SavePlace& place, const std::string& name) {
  const std::string path = place.folder + "/" + name;
  std::error_code ignored;
  return KeepsThingsOf(place.run_dir, place.folder) && fs::exists(path, ignored) ? path : "";
}

std::string MetricsElsewhere(const SavePlace& place) {
  const std::string here = place.run_dir + "/metrics.jsonl",
                    there = place.folder + "/metrics.jsonl";
  if (!KeepsThingsOf(place.run_dir, place.folder) || SizeOf(there) <= SizeOf(here)) return "";
  // Else the run has gone on since, and has written other lines.
  return ReadFileIfThere(there).starts_with(ReadFileIfThere(here)) ? there : "";
}

std::string WhoseElsewhere(const SavePlace& place) {
  if (place.folder.empty() || KeepsThingsOf(place.run_dir, place.folder)) return "";
  if (ThingOfARunIn(place.folder).empty()) return "";
  const std::optional<SavedFor> mark = SavedForIn(place.folder);
  if (!mark) return "a run, and no whole saved_for that says which";
  const bool is_copy = mark->run_id == RunIdOf(place.run_dir);
  if (!is_copy) return "another run";
  return fmt::format("the run in {}, of which {} is a copy", mark->run_dir, place.run_dir);
}

std::vector<std::string> RunsOfSeriesElsewhere(const std::vector<std::string>& runs) {
  const auto is_seed = [](const fs::path& path) {
    return path.filename().string().starts_with("seed-");
  };
  std::set<fs::path> places;
  for (const std::string& run : runs) {
    const fs::path dir = fs::path(run).lexically_normal();
    const fs::path saved = is_seed(dir) ? SavePlaceOf(run).folder : "";
    if (saved.filename() == dir.filename()) places.insert(saved.parent_path());
  }
  std::vector<std::string> found;
  std::error_code error;
  for (const fs::path& place : places) {
    for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error)) {
      const std::string dir = at->path();
      if (is_seed(dir) && IsRunDir(dir) && !SavedForIn(dir)) found.push_back(dir);
    }
  }
  std::ranges::sort(found, {}, [](const std::string& dir) { return std::pair(dir.size(), dir); });
  return found;
}

std::string IfGone(const SavePlace& place) {
  std::error_code ignored;
  if (place.folder.empty()) return "";
  const std::string whose = WhoseElsewhere(place);
  if (fs::is_directory(place.folder, ignored) && whose.empty()) return "";
  return fmt::format("; {} (checkpoint.save_to), where what the run directory cannot take goes, {}",
                     place.folder, whose.empty() ? "is not there" : "has files of " + whose);
}

}  // namespace muster
