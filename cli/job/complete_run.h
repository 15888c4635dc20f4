// `--resume` of a run that has reached its end.
#pragma once

#include <optional>
#include <vector>

#include "cli/job/run_dir.h"
#include "common/base/error.h"
#include "common/config/config.h"

namespace muster {

// Nothing if there is something left to do with these settings: more steps, or the run's last line
// or newest checkpoint is not whole. Otherwise says that there is not, and how to train for longer,
// and changes nothing, but that files of the run's weights that are damaged or gone are written
// again from a checkpoint that has them. kFailure: some are in none. Throws Error(kUsage) where the
// run cannot go on with these settings.
std::optional<ExitCode> EndIfComplete(const RunDir& dir, const std::vector<Setting>& settings);

// Whether a run that has no checkpoint (any more) has reached its end, all its files of weights are
// whole, and these settings do not ask for more.
bool IsCompleteWithoutCheckpoint(const std::string& run_dir, const std::vector<Setting>& settings);

}  // namespace muster
