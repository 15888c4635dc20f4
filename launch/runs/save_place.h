// What a run whose directory could not take everything has left in checkpoint.save_to. Reads files
// only. Whether what lies there is the run's is told by its mark (common/checkpoint/saved_for.h).
#pragma once

#include <string>
#include <vector>

namespace muster {

struct SavePlace {
  std::string run_dir;  // where the run is now
  std::string folder;   // its checkpoint.save_to; "" if it has none
};
// As the run's config.txtpb says it.
SavePlace SavePlaceOf(const std::string& run_dir);

// Whether checkpoints of the run are in the folder.
bool HasCheckpointsElsewhere(const SavePlace& place);

// That of the two, the run directory and the folder, which has the newest checkpoint of the run; ""
// if neither has one.
std::string NewestPlace(const SavePlace& place);

// Of which run directory this is the checkpoint.save_to; "" if it is none, or that is gone.
std::string RunThatSavesTo(const std::string& folder);

// The path of this file of weights in the folder; "" if it is not there, or not the run's.
std::string ModelElsewhere(const SavePlace& place, const std::string& name);

// The path of a metrics.jsonl in the folder which has all that is in the run directory, and more;
// "" if there is none.
std::string MetricsElsewhere(const SavePlace& place);

// Whose things are in the folder, if they are not the run's: "another run", the one that this one
// is a copy of, or a run that no mark tells. "" if they are its own, or nothing is there.
std::string WhoseElsewhere(const SavePlace& place);

// The directories of runs of a series (--repeat) that are in its checkpoint.save_to altogether,
// since its own directory had no room for them any more; in the order of their seeds. `runs`:
// directories of runs, of any.
std::vector<std::string> RunsOfSeriesElsewhere(const std::vector<std::string>& runs);

// What to add to a text that says that something is missing: that the folder is not there, or keeps
// nothing of this run. "" if it does, or none is set.
std::string IfGone(const SavePlace& place);

}  // namespace muster
