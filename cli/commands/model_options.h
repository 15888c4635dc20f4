// The options of the commands about files of weights.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands/arguments.h"

namespace muster {

void DescribeInspect(CLI::App& inspect, Arguments& arguments);
void DescribeImport(CLI::App& import, Arguments& arguments);
void DescribeExport(CLI::App& command, Arguments& arguments);
void DescribeEval(CLI::App& command, Arguments& arguments);
void DescribePredict(CLI::App& command, Arguments& arguments);

}  // namespace muster
