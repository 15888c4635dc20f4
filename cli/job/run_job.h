// One job in its directory: header, run, summary.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/server_address.h"
#include "cli/gpu/job_gpus.h"
#include "cli/job/job_plan.h"
#include "cli/job/launch_command.h"
#include "cli/job/run_dir.h"
#include "cli/process/signal_source.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"

namespace muster {

struct PreparedJob {
  config::Config config;   // resolved
  config::Config written;  // the part of it that the user wrote
  Graph graph;
  DataCount data = {};             // for the header
  std::string resume_remark = {};  // for the header; "" if the run is new
  std::shared_ptr<JobGpus> cards;  // of this host, shared by the runs of a series; may be null
  std::optional<ServerAddress> address = {};      // for workers on other hosts, reached by ssh
  std::vector<std::string> initial_weights = {};  // their source, for the header
};

// The address that the server of a launch listens at.
std::string EndpointFor(const config::Config& config);

// The addresses of a server whose workers do not all run on this host; empty if they do.
std::optional<WorkersByHand> AddressesOf(const LaunchArguments& arguments, const PreparedJob& job);

// Throws Error if the job cannot be started; in that case, it removes a new directory. If results
// could not be written or printed, the exit code is not kOk.
JobOutcome RunJob(const LaunchArguments& arguments, const PreparedJob& job, RunDir& dir,
                  SignalSource& signals);

}  // namespace muster
