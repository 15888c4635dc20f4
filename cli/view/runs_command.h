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

struct RunsArguments {
  std::string dir = "runs";
  std::string sort = "began";      // one of RunOrders
  std::vector<std::string> where;  // see CompareSettings
  bool json = false;
};
std::vector<std::string> RunOrders();

// Returns the exit code.
int ListRuns(const RunsArguments& arguments);

}  // namespace muster
