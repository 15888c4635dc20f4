// `muster eval`: the test accuracy of weights that are there, by a job that trains nothing.
#pragma once

#include <string>

#include "cli/evaluate/evaluation_config.h"
#include "cli/job/launch_command.h"

namespace muster {

struct EvalArguments {
  EvaluationSource source;
  bool confusion = false;  // of all classes, and all counts
  std::string csv;         // where its counts are to be written, too; or ""
  bool json = false;
  double wait_s = 0;  // for cards
  std::string server_program, worker_program;
  std::function<DataCount(const config::Config&)> count_data;
};

// Starts a server and workers as a launch does, has them evaluate the weights once, and prints what
// came out. Returns the exit code, which is a job's. What the job writes goes to a folder of its
// own, which is removed; the source is only read. Throws Error before any process is started.
// Called from the main thread, while there is no other one.
int RunEval(const EvalArguments& arguments);

}  // namespace muster
