// What a run whose directory could not take everything has left in checkpoint.save_to. Reads files
// only.
#pragma once

#include <string>
#include <vector>

namespace muster {

// The files of weights that a run leaves.
inline constexpr const char* kModelFiles[] = {"model.safetensors", "best.safetensors",
                                              "model-raw.safetensors", "model-ema.safetensors"};

struct SavePlace {
  std::string run_dir;  // as the run's config.txtpb has it: the directory may have moved since
  std::string folder;   // checkpoint.save_to of that config; "" if it has none, or there is none
  std::string run_id;   // what tells the run from others wherever it is; "" if nothing says it
};
SavePlace SavePlaceOf(const std::string& run_dir);

// Whether there are checkpoints in place.folder, and these are of the run in `run_dir`.
bool HasCheckpointsElsewhere(const std::string& run_dir, const SavePlace& place);

// That of the two directories, run_dir and place.folder, which has the newest checkpoint of the
// run; "" if neither has one.
std::string NewestPlace(const std::string& run_dir, const SavePlace& place);

// Of which run directory this is the checkpoint.save_to; "" if it is none, or that is gone.
std::string RunThatSavesTo(const std::string& folder);

// The path of this file of weights in place.folder; "" if it is not there, or of another run.
std::string ModelElsewhere(const SavePlace& place, const std::string& name);

// The path of a metrics.jsonl in place.folder, which has all that run_dir's has and more; "" if
// there is none.
std::string MetricsElsewhere(const std::string& run_dir, const SavePlace& place);

// What to add to a text that says that something is missing: that the folder is not there. "" if it
// is, or none is set.
std::string IfGone(const SavePlace& place);

}  // namespace muster
