// The `muster` command line: parses the options and runs the command.
#pragma once

namespace muster {

// Returns the exit code. Prints an error as one line, "muster: error: …". `muster worker` does not
// return unless executing muster-worker fails.
int RunCommandLine(int argc, char** argv);

}  // namespace muster
