// One job in its directory: header, run, summary.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/gpu/job_gpus.h"
#include "cli/job/job_plan.h"
#include "cli/job/launch_command.h"
#include "cli/job/run_dir.h"
#include "cli/process/signal_source.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"

namespace muster {

// The config with everything filled in, and the network.
struct PreparedJob {
  config::Config config;
  Graph graph;
  DataCount data = {};                            // for the header; of files, and of a split
  std::string resume_remark = {};                 // the same, of a run that goes on
  std::shared_ptr<JobGpus> cards;                 // held by every run of a series; null: by hand
  std::vector<std::string> initial_weights = {};  // where they come from, for the header
};

// What the server of a job of this launcher is told to listen at.
std::string EndpointFor(const config::Config& config);

// Throws Error(kUsage) if the trace (--trace FILE) would replace something else than a trace.
// Writes nothing.
void CheckTracePlace(const std::string& path);

// Throws Error if it could not be started; the directory is then taken back. A run whose results
// could not be written or printed is no success.
JobOutcome RunJob(const LaunchArguments& arguments, const PreparedJob& job, RunDir& dir,
                  SignalSource& signals);

}  // namespace muster
