// The options that `muster launch` and `muster server` share.
#pragma once

#include "cli/commands/options.h"
#include "cli/job/launch_command.h"

namespace muster {

struct JobOptions {
  ConfigOptions config;
  std::string resume;  // a run directory, or kResumeAuto

  void Add(CLI::App& command);
  LaunchArguments arguments() const;
};

}  // namespace muster
