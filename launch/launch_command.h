// `muster launch` and `muster server`: one job from its config to its summary.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/config.h"

namespace muster {

// `muster server`: a launch whose workers somebody else starts, on this host or on others.
struct WorkersByHand {
  std::string endpoint, bind;  // see ChooseListenAddress
  std::string token_file;      // empty: MUSTER_TOKEN, or else a new token in the run directory
};

struct LaunchArguments {
  std::string config_path;
  std::vector<Setting> settings;  // --set and the options that are short for one
  std::string server_program, worker_program;
  std::optional<WorkersByHand> by_hand;
};

// Runs the job and returns the launcher's exit code. Everything that is wrong with the config, the
// run directory or the installation throws Error before any process is started. Called from the
// main thread, while there is no other one.
int RunLaunch(const LaunchArguments& arguments);

}  // namespace muster
