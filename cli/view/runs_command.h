// `muster runs`: a table of the runs in a directory.
#pragma once

#include <string>
#include <vector>

#include "cli/view/run_reader.h"

namespace muster {

// As many columns as fit into `width` characters; what matters least is left out first.
std::vector<std::string> RunsTable(const std::vector<RunRecord>& runs, int width);

// An array with an object for each run. What is not known is null.
std::string RunsJson(const std::vector<RunRecord>& runs);

// Returns the exit code.
int ListRuns(const std::string& dir, bool json);

}  // namespace muster
