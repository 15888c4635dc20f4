// A server that was lost: by a signal that nobody of the job sent, or because it said nothing any
// more. What it kept on the disk is whole, and another one can go on from there; so it is no
// failure that would happen again by itself, as a wrong config, missing data or a NaN would. Pure
// functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/job/failure.h"
#include "proto/events.pb.h"

namespace muster {

struct ServerLoss {
  std::string cause;            // "signal 9", "silent"
  std::optional<int64_t> step;  // that was heard of last
  double at = 0;                // seconds, on CLOCK_MONOTONIC
};

// The signal that took the server; empty if it ended otherwise, or was asked to end.
std::optional<int> SignalOfServer(const std::vector<EndedProcess>& ended);

// For the command line of the next server: "120,4711.250,signal 9"; -1 for an unknown step.
std::string LossArgument(const ServerLoss& loss);

// For the summary: "the server was lost at step 120 (signal 9) and started again from step 100, 1
// time"; "" if it never was.
std::string RestartsText(const events::Summary& summary);

}  // namespace muster
