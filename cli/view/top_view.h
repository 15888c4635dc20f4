// Formats a run's status for `muster top`.
#pragma once

#include <string>
#include <vector>

#include "cli/view/run_reader.h"
#include "proto/events.pb.h"

namespace muster {

struct TopScreen {
  int width = 79;
  int height = 24;  // lines; if there are too many ranks, the fastest are left out
  bool color = false;
};

struct TopRun {
  std::string name;
  RunState state = RunState::kKilled;  // kRunning: its server is alive
  double age_s = 0;                    // age of the status
  std::string disk;                    // why the server cannot write to the directory, or ""
  // Bytes of memory that each rank's process uses; NaN on other hosts.
  std::vector<double> rank_bytes;
};

std::vector<std::string> TopLines(const events::Status& status, const TopRun& run,
                                  const TopScreen& screen);

}  // namespace muster
