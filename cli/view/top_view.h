// What `muster top` shows of a run's status.json (proto/PROTOCOL.md, "The status file").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/view/run_reader.h"

namespace muster {

struct TopScreen {
  int width = 79;
  int height = 24;  // lines; the fastest ranks are left out where there are too many
  bool color = false;
};

struct TopRun {
  std::string name;
  RunState state = RunState::kKilled;  // kRunning: its server is there
  double age_s = 0;                    // of the status
  std::string disk;                    // what keeps its server from writing the status, or ""
  // Bytes of memory that each rank's process uses, where it is known: of this host's.
  std::vector<double> rank_bytes;
};

std::vector<std::string> TopLines(const nlohmann::json& status, const TopRun& run,
                                  const TopScreen& screen);

}  // namespace muster
