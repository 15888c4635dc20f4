// `muster launch --repeat N`: runs the same job with N consecutive seeds and compares the results.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/job/run_job.h"

namespace muster {

struct RepeatedRun {
  uint64_t seed = 0;
  std::string dir;  // as the user would type it
  int exit_code = 0;
  std::optional<events::Summary> summary;
};

// The spread of the finite values.
struct Spread {
  int64_t count = 0;
  double mean = 0;       // NaN without values
  double deviation = 0;  // of a sample: √(Σ (x - mean)² / (count - 1)); NaN for fewer than two
};
Spread SpreadOf(std::span<const double> values);

// A table with a row for each run, then mean ± deviation of test accuracy (test loss if the targets
// are values) and of images per second over the completed runs.
std::vector<std::string> RepeatLines(std::span<const RepeatedRun> runs);

// Returns the text of repeat.json, which has the same results.
std::string RepeatJson(std::span<const RepeatedRun> runs);

// The last of `repeat` seeds that begin with `first`. Throws Error(kUsage) if it overflows.
uint64_t LastSeed(uint64_t first, int repeat);

// Runs each seed in <directory>/seed-<seed> and writes <directory>/repeat.json. The first run that
// fails or is stopped ends the series. Returns the exit code.
int RunSeries(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals);

}  // namespace muster
