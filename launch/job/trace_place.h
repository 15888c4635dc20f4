// Where the trace of a run may be written (--trace FILE).
#pragma once

#include <string>

namespace muster {

// Throws Error(kUsage) where the file would be one of a run's own, or lie in the directory of
// another run than that in `run_dir` (may not be there yet), or replace something else than a
// trace. Writes nothing.
void CheckTracePlace(const std::string& path, const std::string& run_dir);

}  // namespace muster
