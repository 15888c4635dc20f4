#include "launch/job/resume_place.h"

#include <filesystem>

#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"

namespace muster {

namespace fs = std::filesystem;

SavePlace PlaceToResume(const RunDir& dir, const std::vector<Setting>& settings) {
  const SavePlace so_far = SavePlaceOf(dir.path());
  SavePlace place = so_far;
  for (const Setting& one : settings) {
    if (one.path == "checkpoint.save_to") place.folder = fs::absolute(one.value).lexically_normal();
  }
  if (so_far.folder.empty() || NewestPlace(dir.path(), so_far) != so_far.folder) return place;
  const CheckpointName newest = ListCheckpoints(so_far.folder).front();
  if (HasCheckpointsElsewhere(dir.path(), place) &&
      newest <= ListCheckpoints(place.folder).front()) {
    return place;
  }
  throw Error(
      ExitCode::kUsage,
      "--resume {}: the newest checkpoint of this run is in {}, its checkpoint.save_to so "
      "far: expected no --save-to, or that one, got {}; to use another one, copy what is in {} "
      "there first",
      dir.shown(), so_far.folder, place.folder, so_far.folder);
}

checkpoint::State NewestOf(const RunDir& dir, const SavePlace& place) {
  const std::string newest = NewestPlace(dir.path(), place);
  if (newest == dir.path() || ListCheckpoints(dir.path()).empty()) return NewestState(newest);
  try {
    return NewestState(newest);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kData) throw;
    return NewestState(dir.path());  // older, but whole
  }
}

std::string ConfigToResume(const RunDir& dir, const SavePlace& place) {
  config::Config config = ParseKeptConfig(NewestOf(dir, place).config());
  if (!place.folder.empty()) config.mutable_checkpoint()->set_save_to(place.folder);
  return ConfigText(config);
}

}  // namespace muster
