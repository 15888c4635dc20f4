// Records restarts of the server: the arguments that the launcher passes to the new server, and
// their event.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/events.pb.h"

namespace muster {

struct LostServer {
  std::optional<int64_t> step;  // the last step that the launcher knew
  double at = 0;                // seconds on CLOCK_MONOTONIC
  std::string cause;
};

// Parses --lost: "120,4711.250,signal 9"; -1 for an unknown step. Throws Error(kUsage).
std::vector<LostServer> ParseLosses(const std::vector<std::string>& arguments);

// Describes a run that resumes now at this step.
events::Restarted RestartAfter(const LostServer& loss, int64_t from_step);

}  // namespace muster
