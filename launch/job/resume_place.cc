#include "launch/job/resume_place.h"

#include <fmt/core.h>

#include <filesystem>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/saved_for.h"
#include "launch/text/console.h"

namespace muster {

namespace fs = std::filesystem;

SavePlace PlaceOf(const std::string& run_dir, const std::vector<Setting>& settings) {
  SavePlace place = SavePlaceOf(run_dir);
  for (const Setting& one : settings) {
    if (one.path == "checkpoint.save_to") place.folder = fs::absolute(one.value).lexically_normal();
  }
  return place;
}

SavePlace PlaceToResume(const RunDir& dir, const std::vector<Setting>& settings) {
  const SavePlace so_far = SavePlaceOf(dir.path());
  SavePlace place = PlaceOf(dir.path(), settings);
  if (so_far.folder.empty() || NewestPlace(so_far) != so_far.folder) return place;
  const CheckpointName newest = ListCheckpoints(so_far.folder).front();
  if (HasCheckpointsElsewhere(place) && newest <= ListCheckpoints(place.folder).front()) {
    return place;
  }
  throw Error(
      ExitCode::kUsage,
      "--resume {}: the newest checkpoint of this run is in {}, its checkpoint.save_to so "
      "far: expected no --save-to, or that one, got {}; to use another one, copy what is in {} "
      "there first",
      dir.shown(), so_far.folder, place.folder, so_far.folder);
}

checkpoint::State NewestOf(const SavePlace& place) {
  const std::string newest = NewestPlace(place);
  if (newest == place.run_dir || ListCheckpoints(place.run_dir).empty()) return NewestState(newest);
  try {
    return NewestState(newest);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    return NewestState(place.run_dir);  // older, but whole
  }
}

std::string ConfigToResume(const SavePlace& place) {
  config::Config config = ParseKeptConfig(NewestOf(place).config());
  if (!place.folder.empty()) config.mutable_checkpoint()->set_save_to(place.folder);
  return ConfigText(config);
}

std::string KeptConfigFile(const SavePlace& place) {
  return "# Written by muster launch --resume: the config of the run as its checkpoint holds "
         "it.\n" +
         ConfigToResume(place);
}

void NoteMove(const SavePlace& place) {
  if (!KeepsThingsOf(place.run_dir, place.folder)) return;
  const SavedFor run{.run_id = SavedForIn(place.folder)->run_id, .run_dir = place.run_dir};
  const auto try_to = [](const auto& write) {
    try {
      write();
    } catch (const Error& error) {
      PrintError(fmt::format("muster: warning: {}\n", error.what()));
    }
  };
  // By either of them the run is known here once its config names the new place.
  if (RunIdOf(place.run_dir).empty() && SavedForIn(place.folder) != run) {
    try_to([&] { WriteFileAtomically(place.run_dir + "/" + kRunIdFile, run.run_id); });
  }
  try_to([&] { MarkSavedFor(place.folder, run); });
}

}  // namespace muster
