// Carries out the command that was typed.
#pragma once

#include <CLI/CLI.hpp>

#include "launch/command_line/arguments.h"

namespace muster {

// Returns the exit code. `app` has parsed the command line.
int RunCommand(const CLI::App& app, const Arguments& as_typed);

}  // namespace muster
