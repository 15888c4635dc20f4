// The `muster` command line: options, help, and which command runs.
#pragma once

namespace muster {

// Returns the exit code. Errors are printed as one line, "muster: error: …". Never returns for
// `muster worker` where muster-worker can be executed.
int RunCommandLine(int argc, char** argv);

}  // namespace muster
