// Carries out the command that was typed.
#pragma once

#include <string>

#include "cli/commands/arguments.h"

namespace muster {

// Returns the exit code. `command` as typed: "launch", "data get".
int RunCommand(const std::string& command, const Arguments& as_typed);

}  // namespace muster
