// `muster top`: watches a run from any terminal, by reading its status.
#pragma once

#include <string>

namespace muster {

// On a terminal, refreshes the view until the run ends, or a key or signal stops it. Otherwise, or
// with `once`, prints it once. Returns the exit code; throws Error(kUsage) if there is no run.
int WatchRun(const std::string& run_dir, bool once);
// Prints the status as JSON, for other programs.
int PrintStatusJson(const std::string& run_dir);

}  // namespace muster
