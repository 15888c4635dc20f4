// A run's directory that was moved or copied to another place after its config was written.
#pragma once

#include <string>

#include "proto/config_fwd.h"

namespace muster {

// Whether the config of this path is the one that a run has left in its directory, wherever that is
// now, and not one that somebody wrote.
bool IsConfigOfRun(const std::string& config_path);

// For an error about data that are not there: a run that was moved together with its data names
// their old place. `config`: as the run wrote it; `run_dir`: where the run is now. "" if that is no
// explanation.
std::string MovedDataHint(const config::Config& config, const std::string& run_dir);

}  // namespace muster
