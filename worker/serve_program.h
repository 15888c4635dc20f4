// muster-worker --program-fd: takes part in a job on behalf of a program that trains its own model.
#pragma once

#include "worker/arguments.h"

namespace muster {

// Serves the program at the other end of the socket until its end. Throws Error.
void ServeProgram(const WorkerArguments& arguments);

}  // namespace muster
