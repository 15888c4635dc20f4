// `muster runs`: lists the runs in a directory.
#pragma once

#include <string>
#include <vector>

#include "cli/view/run_reader.h"

namespace muster {

// Shows as many columns as fit into `width` characters, the most important ones first.
std::vector<std::string> RunsTable(const std::vector<RunRecord>& runs, int width);

// An array with one object per run. Unknown values are null.
std::string RunsJson(const std::vector<RunRecord>& runs);

// Returns the exit code.
int ListRuns(const std::string& dir, bool json);

}  // namespace muster
