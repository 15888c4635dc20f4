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

// Of the run in this directory: its config says where files of it may be besides, unless --save-to
// does.
SavePlace PlaceOf(const std::string& run_dir, const std::vector<Setting>& settings);

// The same of a run that is to go on. Never the older one of two: throws Error(kUsage).
SavePlace PlaceToResume(const RunDir& dir, const std::vector<Setting>& settings);

// The state in the newest checkpoint. Throws Error(kData) if none is whole.
checkpoint::State NewestOf(const SavePlace& place);

// The config in it, as text, with this place; and what config.txtpb is then. What the run was
// started with may say less: with batch_per_worker the batch follows the workers.
std::string ConfigToResume(const SavePlace& place);
std::string KeptConfigFile(const SavePlace& place);

// The run goes on where it is: if its directory was moved, checkpoint.save_to is marked for the new
// one, and the directory gets the run's id if it has none. What cannot be written is a warning.
void NoteMove(const SavePlace& place);

}  // namespace muster
