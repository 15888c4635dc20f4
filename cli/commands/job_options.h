// The options that `muster launch` and `muster server` share.
#pragma once

#include "cli/commands/options.h"
#include "cli/job/launch_command.h"

namespace muster {

struct JobOptions {
  ConfigOptions config;
  std::string resume;  // a run directory, or kResumeAuto

  // `needs_config`: unless a run is resumed.
  void Add(CLI::App& command, bool needs_config);
  LaunchArguments arguments() const;
};

}  // namespace muster
