// The commands of `muster` and their options.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands/arguments.h"

namespace muster {

// Parsing with `app` fills `arguments`, which must outlive it.
void AddCommands(CLI::App& app, Arguments& arguments);

}  // namespace muster
