// The server of a run that is resumed, if it was lost: who resumes the run, a person or a service
// manager, is told of it as of a loss that the launcher has seen itself.
#pragma once

#include <optional>
#include <string>

#include "launch/job/server_loss.h"

namespace muster {

// By the run directory's status.json: its writer is gone, and has not said how the run ended.
// Nothing where that is not so, or not known.
std::optional<ServerLoss> LostBefore(const std::string& run_dir);

}  // namespace muster
