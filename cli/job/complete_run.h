// `--resume` of a run that has reached its end.
#pragma once

#include <optional>
#include <vector>

#include "cli/job/run_dir.h"
#include "common/base/error.h"
#include "common/config/config.h"

namespace muster {

// Returns nothing if work is left with these settings: more steps, or a last line or newest
// checkpoint that is damaged, or a last line or weights of another step. Otherwise prints that the
// run is complete and how to train longer, and restores damaged or missing weights files from
// checkpoints. Changes nothing else. Returns kFailure if no checkpoint holds some of these weights.
// Throws Error(kUsage) if the run cannot continue with these settings.
std::optional<ExitCode> EndIfComplete(const RunDir& dir, const std::vector<Setting>& settings);

// Whether a run without checkpoints has reached its end, all its weights files are intact, and
// these settings do not extend it.
bool IsCompleteWithoutCheckpoint(const std::string& run_dir, const std::vector<Setting>& settings);

}  // namespace muster
