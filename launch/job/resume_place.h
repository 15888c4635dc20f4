// Where a run that is to go on has its newest checkpoint: in its directory, or in
// checkpoint.save_to.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "launch/job/run_dir.h"
#include "launch/runs/save_place.h"
#include "proto/checkpoint.pb.h"

namespace muster {

// Its config says where its newest checkpoint may be, unless --save-to does. Never the older one of
// two: throws Error(kUsage).
SavePlace PlaceToResume(const RunDir& dir, const std::vector<Setting>& settings);

// The state in the newest checkpoint. Throws Error(kData) if none is whole.
checkpoint::State NewestOf(const RunDir& dir, const SavePlace& place);

// The config in it, as text, with this place.
std::string ConfigToResume(const RunDir& dir, const SavePlace& place);

}  // namespace muster
