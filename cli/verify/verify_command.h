// `muster verify`: whether a run comes out the same, bit for bit, if it is done again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/job/launch_command.h"
#include "common/config/config.h"

namespace muster {

struct VerifyArguments {
  std::string run;                // its directory, which is only read
  std::vector<Setting> settings;  // --set and the options that are short for one
  bool last = false;              // only between the last two steps that have a checkpoint
  bool json = false;
  double wait_s = 0;  // for cards
  std::string server_program, worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Starts a server and workers as a launch does. They begin at the run's oldest checkpoint, go on to
// its newest one, and compare what they have with each on the way. What the job writes goes to a
// folder of its own, which is removed. Prints one line, and returns 0 if all bits are the same, 1
// at the first difference. Throws Error if it comes to neither. Called from the main thread, while
// there is no other one.
int RunVerify(const VerifyArguments& arguments);

}  // namespace muster
