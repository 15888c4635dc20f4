// `muster launch --repeat N`: the same job with N consecutive seeds, and what such a series shows.
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
  std::string dir;    // as a person types it
  int exit_code = 0;  // of the run
  std::optional<events::Summary> summary;
};

// The spread of the finite values.
struct Spread {
  int64_t count = 0;
  double mean = 0;       // NaN without values
  double deviation = 0;  // of a sample: √(Σ (x - mean)² / (count - 1)); NaN for fewer than two
};
Spread SpreadOf(std::span<const double> values);

// A table with a row for each run, then mean ± deviation of test accuracy (of values, test
// loss) and images per second over the runs that were completed.
std::vector<std::string> RepeatLines(std::span<const RepeatedRun> runs);

// The same for programs: the text of repeat.json.
std::string RepeatJson(std::span<const RepeatedRun> runs);

// The last of `repeat` seeds from `first` on. Throws Error(kUsage) if that is too large a number.
uint64_t LastSeed(uint64_t first, int repeat);

// Each run in <directory>/seed-<seed>, the results in <directory>/repeat.json. Returns the exit
// code; the first run that fails or is stopped ends the series with its own.
int RunSeries(const LaunchArguments& arguments, PreparedJob job, SignalSource& signals);

}  // namespace muster
