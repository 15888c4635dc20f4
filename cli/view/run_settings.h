// The settings of runs: which differ, and which a user asks for.
#pragma once

#include <string>
#include <vector>

#include "cli/view/run_reader.h"

namespace muster {

// Removes the runs that do not fit one of `conditions`, each "state=NAME" or "SETTING=VALUE". A
// setting may be named by the end of its path if only one ends like this. Throws Error(kUsage) if
// no run has the setting. Then fills in the settings in which the others differ.
void CompareSettings(const std::vector<std::string>& conditions, std::vector<RunRecord>& runs);

}  // namespace muster
