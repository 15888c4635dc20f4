// The files of a run that left no checkpoint, put aside so that it can begin anew in its place:
// nothing is lost but what its metrics and logs say.
#pragma once

#include <string>

#include "launch/job/run_dir.h"
#include "launch/runs/save_place.h"

namespace muster {

// kRun: all of the run's files. kAttempt: what its server and workers have written, while the
// launcher goes on with its own: config.txtpb and repeat.json.
enum class Aside { kRun, kAttempt };

// Moves them into DIR/attempt-N, never other attempts, locks and the token. That folder's name.
// Throws Error(kUsage).
std::string PutAside(const RunDir& dir, Aside what);

// The same for what its own directory could not take, in checkpoint.save_to; "" if nothing is
// there. Before PutAside, which takes the run's mark.
std::string PutSavedAside(const SavePlace& place);

}  // namespace muster
