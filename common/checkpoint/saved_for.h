// Whose things lie in a checkpoint.save_to, where the last checkpoint, weights and metrics of a run
// go that its own directory cannot take. Such a folder has a mark, a file saved_for, written before
// anything else is: a line with the run's id, and one with the directory that it works in. Within a
// marked folder everything is that run's; where there is no mark, nothing is, whatever lies there.
#pragma once

#include <optional>
#include <string>

namespace muster {

inline constexpr const char* kSavedForFile = "saved_for";

// The files of weights that a run leaves.
inline constexpr const char* kModelFiles[] = {"model.safetensors", "best.safetensors",
                                              "model-raw.safetensors", "model-ema.safetensors"};

struct SavedFor {
  std::string run_id, run_dir;
  bool operator==(const SavedFor&) const = default;
};

// What the mark of this folder says; nothing if it has none.
std::optional<SavedFor> SavedForIn(const std::string& folder);

// Whether `folder` keeps things of the run in `run_dir`: its mark has the run's id, and names that
// directory, or one that the run has left since. A copy of a run has nothing there as long as the
// run itself is where it was. A directory that nothing says the id of, since no checkpoint could be
// written there, is told by its path alone, or by that which its config.txtpb has.
bool KeepsThingsOf(const std::string& run_dir, const std::string& folder);

// The name of something there that a run has left, whichever; "" if there is nothing. A mark alone
// is nothing.
std::string ThingOfARunIn(const std::string& folder);

// Makes the folder, if it is not there, and marks it for this run. Throws Error(kFailure) if things
// are there that are not the run's, or it cannot be written.
void MarkSavedFor(const std::string& folder, const SavedFor& run);

// What config.txtpb in a run's directory says of places; "" for what it does not say.
struct ConfiguredPlaces {
  std::string run_dir, save_to;
};
ConfiguredPlaces PlacesInConfigOf(const std::string& run_dir);

}  // namespace muster
