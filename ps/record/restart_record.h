// That a run's server was lost, and another one goes on: what the launcher tells of it, and what
// metrics.jsonl keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/events.pb.h"

namespace muster {

inline constexpr const char* kServerRestarted = "server_restarted";

struct LostServer {
  std::optional<int64_t> step;  // that the launcher had heard of
  double at = 0;                // seconds, on CLOCK_MONOTONIC
  std::string cause;
};

// Reads --lost: "120,4711.250,signal 9"; -1 for an unknown step. Throws Error(kUsage).
std::vector<LostServer> ParseLosses(const std::vector<std::string>& arguments);

// The run goes on now, from this step.
events::Restarted RestartAfter(const LostServer& loss, int64_t from_step);

struct MetricsEvents {
  std::vector<events::Restarted> restarts;  // of the whole file
  std::vector<std::string> undone;          // lines of events behind `bytes`, each with its newline
};

// What the text of metrics.jsonl says besides the steps. A line that cannot be read, such as a last
// one that was cut off, is none.
MetricsEvents ReadMetricsEvents(std::string_view text, size_t bytes);

}  // namespace muster
