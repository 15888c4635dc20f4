// Where the trace of a run may be written (--trace FILE).
#pragma once

#include <string>

namespace muster {

// Throws Error(kUsage) if the file would replace something else than a trace. Writes nothing.
void CheckTracePlace(const std::string& path);

}  // namespace muster
