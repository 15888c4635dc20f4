// The options of the commands that start a job, or a part of one.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/commands/arguments.h"

namespace muster {

inline constexpr uint64_t kMostWorkers = 1024;  // as cluster.workers

void DescribeLaunch(CLI::App& launch, Arguments& arguments);
void DescribeServer(CLI::App& server, Arguments& arguments);
void DescribeWorker(CLI::App& worker, Arguments& arguments);

}  // namespace muster
