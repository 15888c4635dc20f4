// `muster top`: a live run, seen from any terminal. It only reads the run's status file.
#pragma once

#include <string>

namespace muster {

// On a terminal shows the run again and again, until it ends, or a key or a signal says stop;
// otherwise, or with `once`, prints it once. Throws Error(kUsage) where there is no run. Returns
// the exit code.
int WatchRun(const std::string& run_dir, bool once);

}  // namespace muster
