// The server of a run that is resumed, if it was lost. Where a service manager starts `muster
// server` again, nobody has seen the loss: it is told of as one that `muster launch` has mended.
#pragma once

#include <optional>
#include <string>

#include "cli/job/server_loss.h"

namespace muster {

// By the run directory's status.json: its writer is gone, and has not said how the run ended.
// Nothing where that is not so, or not known.
std::optional<ServerLoss> LostBefore(const std::string& run_dir);

}  // namespace muster
