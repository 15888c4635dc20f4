// `--repeat N`: the same job with N consecutive seeds.
#pragma once

#include <cstdint>

#include "cli/job/run_job.h"

namespace muster {

// Of seeds first ... first + repeat - 1. Throws Error(kUsage) if there are no so many.
uint64_t LastSeed(uint64_t first, int repeat);

// Each run in <directory>/seed-<seed>, the results in <directory>/repeat.json. Returns the exit
// code; the first run that fails or is stopped ends the series with its own.
int RunSeries(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals);

}  // namespace muster
