// What a series of runs with consecutive seeds shows: `muster launch --repeat N`. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/events.pb.h"

namespace muster {

struct RepeatedRun {
  uint64_t seed = 0;
  std::string dir;    // as a person types it
  int exit_code = 0;  // of the run
  std::optional<events::Summary> summary;
};

// Of the values that are finite.
struct Spread {
  int64_t count = 0;
  double mean = 0;       // NaN without values
  double deviation = 0;  // of a sample: √(Σ (x - mean)² / (count - 1)); NaN for fewer than two
};
Spread SpreadOf(std::span<const double> values);

// A table with a row for each run, then mean ± deviation of test accuracy and images per second
// over the runs that were completed.
std::vector<std::string> RepeatLines(std::span<const RepeatedRun> runs);

// The same for programs: the text of repeat.json.
std::string RepeatJson(std::span<const RepeatedRun> runs);

}  // namespace muster
