// Makes the program that updates the weights a part of a run, and lets it end after the run.
#pragma once

#include <functional>
#include <string>

#include "common/base/error.h"
#include "ps/run/run.h"
#include "ps/update/program_updater.h"

namespace muster {

// The weights of the run's step exist. `updater` must outlive the run's last step. `failed`: see
// ProgramUpdater::Attach.
void AttachUpdater(ProgramUpdater& updater, Run& run, std::function<void(const Error&)> failed);

// Tells the program that the run is complete, and waits up to a minute until it has ended: it may
// still save what only this process has. Calls `meanwhile` often. Returns a warning, or "".
std::string EndUpdater(ProgramUpdater& updater, int64_t steps,
                       const std::function<void()>& meanwhile);

}  // namespace muster
