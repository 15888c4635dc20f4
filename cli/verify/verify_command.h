// `muster verify`: checks that repeating a run gives the same bits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/job/launch_command.h"
#include "common/config/config.h"

namespace muster {

struct VerifyArguments {
  std::string run;                // its directory, which is not changed
  std::vector<Setting> settings;  // --set and its shorthands
  bool last = false;              // verify only the last two steps that have a checkpoint
  bool json = false;
  double wait_s = 0;  // how long to wait for GPUs
  std::string server_program, worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Starts a server and workers as a launch does. They train from the run's oldest checkpoint to its
// newest one and compare their state with each on the way. The job writes to a temporary folder.
// Prints one line, and returns 0 if all bits are the same, or 1 at the first difference. Throws
// Error otherwise. Call it from the main thread, while there is no other thread.
int RunVerify(const VerifyArguments& arguments);

}  // namespace muster
