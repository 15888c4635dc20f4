// One job in its directory: header, run, summary.
#pragma once

#include <string>

#include "common/config.h"
#include "common/graph.h"
#include "launch/launch_command.h"
#include "launch/run_dir.h"
#include "launch/signal_source.h"
#include "launch/supervisor.h"
#include "proto/config.pb.h"

namespace muster {

// The config with everything filled in, and the network.
struct PreparedJob {
  config::Config config;
  Graph graph;
  std::string data_remark = {};  // for the header
};

struct JobResult {
  JobOutcome outcome;
  bool printed = true;  // all of it, unless nobody wanted to read on
};

// A run whose results could not be printed is no success.
ExitCode WithOutput(ExitCode run, bool printed);

// Throws Error if it could not be started; the directory is then taken back.
JobResult RunJob(const LaunchArguments& arguments, const PreparedJob& job, RunDir& dir,
                 SignalSource& signals);

}  // namespace muster
