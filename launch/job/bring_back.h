// A run whose directory could not take everything goes on, or has come to its end: what lies in
// checkpoint.save_to comes back into the directory, as far as it has room by now. Nothing is
// removed there. All that is written is there whole or not at all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/runs/save_place.h"

namespace muster {

// metrics.jsonl, where that of the folder has all that is in the run directory, and more. Where
// there is no room for it, the run goes on with what its checkpoint says of the rest.
void BringBackMetrics(const SavePlace& place);

struct BroughtBack {
  std::vector<std::string> files;      // in the run directory now, by their names there
  std::vector<std::string> mended;     // damaged files, with what has become of each
  std::vector<std::string> elsewhere;  // files for which the run directory has no room yet
};
// Metrics, weights and the newest checkpoint of a run that is complete, and its config with them.
// `weights`: the files that it has left, and of which step each is. Of one that is damaged in one
// of the two places the other one is copied there.
BroughtBack BringBack(const SavePlace& place, const std::map<std::string, int64_t>& weights);

}  // namespace muster
