// `muster launch`: one job from its config to its summary.
#pragma once

#include <string>
#include <vector>

#include "common/config.h"

namespace muster {

struct LaunchArguments {
  std::string config_path;
  std::vector<Setting> settings;  // --set and the options that are short for one
  std::string server_program, worker_program;
};

// Runs the job and returns the launcher's exit code. Everything that is wrong with the config, the
// run directory or the installation throws Error before any process is started. Called from the
// main thread, while there is no other one.
int RunLaunch(const LaunchArguments& arguments);

}  // namespace muster
