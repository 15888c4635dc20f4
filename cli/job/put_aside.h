// The files of a run that left no checkpoint, put aside so that it can begin anew in its place:
// nothing is lost but what its metrics and logs say. What a run does not write stays, whatever
// else somebody keeps there.
#pragma once

#include <string>

#include "cli/job/run_dir.h"

namespace muster {

// kAttempt: what server and workers have written, while the launcher goes on with what is its own.
// kRun: that as well, which is config.txtpb and repeat.json.
enum class Aside { kAttempt, kRun };

// Moves them into DIR/attempt-N, but for `input`, the weights that the run begins with. That
// folder's name. Throws Error(kUsage); then all is where it was.
std::string PutAside(const RunDir& dir, Aside what, const std::string& input);

}  // namespace muster
